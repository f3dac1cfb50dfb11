/* Own functions in programs, on every plugin of TT_TEST_PLUGINS: that the frame is laid out as ffi_abi.h says, that errors
 * arrive, that stored programs find the functions again. */
#include <stdlib.h>

#include "pjrt/ffi_abi.h"
#include "pjrt/internal.h"
#include "pjrt/test_support.h"

static int calls;

/* x times k plus 1, if all that is known of the frame is there. */
static XLA_FFI_Error *times_plus(XLA_FFI_Call_Frame *f) {
  for (XLA_FFI_Extension *e = f->extension_start; e; e = e->next) {
    if (e->type != XLA_FFI_EXTENSION_METADATA) continue;
    XLA_FFI_Metadata *m = ((XLA_FFI_Metadata_Extension *)(void *)e)->metadata;
    m->api_version.major_version = f->api->version.major_version;
    m->api_version.minor_version = f->api->version.minor_version;
    return NULL;
  }
  calls++;
  TT_CHECK(f->struct_size >= offsetof(XLA_FFI_Call_Frame, attributes) + sizeof f->attributes);
  TT_CHECK_INT_EQ(f->stage, XLA_FFI_STAGE_EXECUTE);
  TT_CHECK(f->operands.count == 1 && f->results.count == 1 && f->attributes.count == 2);
  TT_CHECK(f->operands.kinds[0] == XLA_FFI_BUFFER && f->results.kinds[0] == XLA_FFI_BUFFER);
  const XLA_FFI_Buffer *x = f->operands.buffers[0], *y = f->results.buffers[0];
  TT_CHECK(x->dtype == 11 && x->rank == 2 && x->dims[0] == 2 && x->dims[1] == 3);
  TT_CHECK(y->dtype == 11 && y->rank == 2 && y->dims[0] == 2 && y->dims[1] == 3);
  const XLA_FFI_Scalar *fail = f->attributes.values[0], *k = f->attributes.values[1]; /* sorted by name */
  TT_CHECK(f->attributes.kinds[0] == XLA_FFI_ATTRIBUTE_SCALAR && fail->dtype == 5 && k->dtype == 5);
  TT_CHECK(f->attributes.names[0]->size == 4 && !memcmp(f->attributes.names[0]->data, "fail", 4));
  TT_CHECK(f->attributes.names[1]->size == 1 && *f->attributes.names[1]->data == 'k');
  if (*(const int64_t *)fail->value) {
    XLA_FFI_Error_Create_Args args = {.struct_size = sizeof args, .message = "it was asked to", .code = XLA_FFI_RESOURCE_EXHAUSTED};
    return f->api->Error_Create(&args);
  }
  for (int i = 0; i < 6; i++) {
    ((float *)y->data)[i] = ((const float *)x->data)[i] * (float)*(const int64_t *)k->value + 1;
  }
  return NULL;
}

static const tt_handler handlers[] = {{"tt_test_times_plus", times_plus}};

/* The transposed operand would come column by column if its layout were not asked for. */
#define PROGRAM(fail)                                                                                                  \
  "module { func.func public @main(%a: tensor<3x2xf32>) -> tensor<2x3xf32> { %t = stablehlo.transpose %a, dims = [1, 0] : " \
  "(tensor<3x2xf32>) -> tensor<2x3xf32> %r = \"stablehlo.custom_call\"(%t) {call_target_name = \"tt_test_times_plus\", " \
  "api_version = 4 : i32, backend_config = {k = 3 : i64, fail = " fail " : i64}, operand_layouts = [dense<[1, 0]> : "   \
  "tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>]} : (tensor<2x3xf32>) -> tensor<2x3xf32> return " \
  "%r : tensor<2x3xf32> } }"

/* Runs a program on [[1, 2], [3, 4], [5, 6]]; null if its result failed. */
static tt_status run(tt_client *c, tt_executable *e, float *out) {
  static const float x[] = {1, 2, 3, 4, 5, 6};
  tt_pjrt_buffer *in = NULL, *result = NULL;
  TT_TRY(tt_buffer_from_host(c, 0, TT_F32, 2, (int64_t[]){3, 2}, x, &in));
  tt_status status = tt_executable_execute(e, 0, 1, &in, NULL, &result);
  if (!status) status = tt_buffer_to_host(c, result, out, 6 * sizeof *out);
  tt_buffer_destroy(c, result);
  tt_buffer_destroy(c, in);
  return status;
}

static void check_results(tt_client *c, tt_executable *e) {
  static const float expected[] = {4, 10, 16, 7, 13, 19};
  float out[6] = {0};
  TT_CHECK_OK(run(c, e, out));
  TT_CHECK(!memcmp(out, expected, sizeof out));
}

static void test_plugin(tt_plugin *p) {
  tt_client *c = NULL;
  tt_executable *e = NULL, *loaded = NULL;
  uint8_t *data = NULL;
  size_t size;
  TT_CHECK(tt_plugin_has(p, TT_FEATURE_HANDLERS));
  TT_CHECK_OK(tt_plugin_register(p, 1, handlers));
  TT_CHECK_OK(tt_plugin_register(p, 1, handlers)); /* does nothing more */
  TT_CHECK_OK(tt_client_create(p, &c));
  TT_CHECK_OK(tt_executable_compile(c, PROGRAM("0"), strlen(PROGRAM("0")), NULL, &e));
  check_results(c, e);
  TT_CHECK_OK(tt_executable_serialize(e, &data, &size));
  TT_CHECK_OK(tt_executable_deserialize(c, data, size, NULL, &loaded));
  check_results(c, loaded);
  tt_executable_destroy(e);
  tt_executable_destroy(loaded);
  free(data);
  TT_CHECK_OK(tt_executable_compile(c, PROGRAM("1"), strlen(PROGRAM("1")), NULL, &e));
  float out[6];
  CHECK_FAILS(run(c, e, out), TT_OUT_OF_MEMORY, "it was asked to");
  tt_executable_destroy(e);
  tt_client_destroy(c);
}

TT_TEST(functions_are_called_by_programs) {
  const char *list = getenv("TT_TEST_PLUGINS");
  if (!list) return;
  char *paths = strdup(list), *rest = NULL;
  for (char *path = strtok_r(paths, ":", &rest); path; path = strtok_r(NULL, ":", &rest)) {
    tt_plugin *p = NULL;
    calls = 0;
    TT_CHECK_OK(tt_plugin_load(path, &p));
    if (p) test_plugin(p);
    TT_CHECK_INT_EQ(calls, 3);
  }
  free(paths);
}

TT_TEST(a_plugin_without_the_extension_says_so) {
  tt_plugin *p = NULL;
  TT_CHECK_OK(tt_plugin_load(getenv("TT_MOCK_PLUGIN"), &p));
  TT_CHECK(!tt_plugin_has(p, TT_FEATURE_HANDLERS));
  CHECK_FAILS(tt_plugin_register(p, 1, handlers), TT_NOT_IMPLEMENTED, "does not support own functions");
}

/* ---- extensions as other plugins may have them ------------------------------------------------------------------- */

static struct PJRT_Error *never(PJRT_FFI_Register_Args *args) {
  (void)args;
  return NULL;
}

TT_TEST(the_extension_is_looked_for_with_care) {
  PJRT_FFI_Extension whole = {{sizeof whole, PJRT_EXTENSION_FFI, NULL}, NULL, NULL, never};
  PJRT_FFI_Extension empty = {{sizeof empty, PJRT_EXTENSION_FFI, &whole.base}, NULL, NULL, NULL};
  PJRT_FFI_Extension brief = {{sizeof(PJRT_Extension), PJRT_EXTENSION_FFI, &empty.base}, NULL, NULL, never};
  PJRT_Extension other = {sizeof other, 4, &brief.base};
  TT_CHECK(tt_ffi_extension(&(PJRT_Api){.extension_start = &other}) == &whole);
  whole.register_handler = NULL;
  TT_CHECK(!tt_ffi_extension(&(PJRT_Api){.extension_start = &other}));
  TT_CHECK(!tt_ffi_extension(&(PJRT_Api){.extension_start = NULL}));
}
