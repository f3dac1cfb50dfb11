/* What reading and writing views emits; and, where TT_TEST_PLUGIN names a PJRT plugin, that random views run as they
 * should (TT_VIEW_CASES and TT_VIEW_SEED choose how many and which). */
#include "tests/tt_test.h"

#include <stdlib.h>

#include "pjrt/pjrt.h"
#include "view/view_random.h"

#define DIMS(...) (int64_t[]){__VA_ARGS__}

/* ---- text --------------------------------------------------------------------------------------------------- */

/* "read" or "write" through v over f32 [rank, dims]: the names of the operations that are emitted, or the failure. */
static const char *emitted(bool write, int rank, const int64_t *dims, const tt_view *v) {
  static char names[1024];
  tt_arena arena = TT_ARENA_INIT;
  hlo_builder *b = hlo_builder_create(&arena, "main", true);
  hlo_value array = hlo_param(b, hlo_type_make(b, TT_F32, rank, dims), NULL);
  hlo_value value = write ? hlo_param(b, hlo_type_make(b, v->dtype, v->rank, v->sizes), NULL) : HLO_NONE;
  hlo_value result = write ? tt_view_write(b, array, array.type, v, value) : tt_view_read(b, array, v);
  hlo_return(b, 1, &result);
  const char *text;
  size_t size;
  names[0] = 0;
  tt_status status = hlo_builder_finish(b, &text, &size);
  if (status) {
    snprintf(names, sizeof names, "%s", tt_status_message(status));
    tt_status_free(status);
  } else {
    for (const char *at = text; (at = strstr(at, "stablehlo.")); ) {
      at += strlen("stablehlo.");
      size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
      bool attribute = at[-(int)strlen("#stablehlo.")] == '#';
      if (attribute || !strncmp(at, "constant", length) || !strncmp(at, "return", length)) continue;
      snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.*s", names[0] ? " " : "", (int)length, at);
    }
  }
  hlo_builder_destroy(b);
  tt_arena_free(&arena);
  return names;
}

static const char *read_of(int rank, const int64_t *dims, const tt_view *v) { return emitted(false, rank, dims, v); }
static const char *write_of(int rank, const int64_t *dims, const tt_view *v) { return emitted(true, rank, dims, v); }

TT_TEST(few_operations) {
  int64_t *dims = DIMS(8, 16), *strides = DIMS(16, 1), *square = DIMS(64, 64);
  tt_view same = {TT_F32, 2, dims, strides, 0}, turned = {TT_F32, 2, DIMS(16, 8), DIMS(1, 16), 0};
  tt_view part = {TT_F32, 2, DIMS(7, 3), strides, 18}, row = {TT_F32, 1, DIMS(16), DIMS(1), 16};
  tt_view even = {TT_F32, 2, DIMS(8, 8), DIMS(16, 2), 0}, empty = {TT_F32, 2, DIMS(0, 3), DIMS(3, 1), 1000};
  tt_view diagonal = {TT_F32, 1, DIMS(64), DIMS(65), 0}, windows = {TT_F32, 2, DIMS(6, 3), DIMS(1, 1), 0};
  TT_CHECK_STR_EQ(read_of(2, dims, &same), "");
  TT_CHECK_STR_EQ(read_of(2, dims, &turned), "transpose");
  TT_CHECK_STR_EQ(read_of(2, dims, &part), "slice");
  TT_CHECK_STR_EQ(read_of(2, dims, &row), "slice reshape");
  TT_CHECK_STR_EQ(read_of(2, dims, &empty), "");
  TT_CHECK_STR_EQ(read_of(2, dims, &windows), "reshape iota gather");
  TT_CHECK_STR_EQ(write_of(2, dims, &same), "");
  TT_CHECK_STR_EQ(write_of(2, dims, &turned), "transpose");
  TT_CHECK_STR_EQ(write_of(2, dims, &part), "dynamic_update_slice");
  TT_CHECK_STR_EQ(write_of(2, dims, &row), "reshape dynamic_update_slice");
  TT_CHECK_STR_EQ(write_of(2, dims, &even), "pad slice pad select dynamic_update_slice");
  TT_CHECK_STR_EQ(write_of(2, dims, &empty), "");
  TT_CHECK_STR_EQ(write_of(2, square, &diagonal), "reshape iota broadcast_in_dim multiply scatter reshape");
}

TT_TEST(refusals) {
  tt_view far = {TT_F32, 1, DIMS(4), DIMS(2), 2}, broadcast = {TT_F32, 2, DIMS(2, 4), DIMS(0, 1), 0};
  const char *out_of_bounds = "setStorage: sizes [4], strides [2], storage offset 2, and itemsize 4 requiring a "
                              "storage size of 36 are out of bounds for storage of size 32";
  const char *overlap = "more than one element of the written-to tensor refers to a single memory location";
  TT_CHECK(strstr(read_of(1, DIMS(8), &far), out_of_bounds) != NULL);
  TT_CHECK(strstr(write_of(1, DIMS(8), &far), out_of_bounds) != NULL);
  TT_CHECK(strstr(write_of(1, DIMS(8), &broadcast), overlap) != NULL);
}

/* ---- on a plugin -------------------------------------------------------------------------------------------- */

static int64_t position_of(const tt_view *v, int64_t at) {
  int64_t position = v->offset;
  for (int i = v->rank - 1; i >= 0; i--) position += at % v->sizes[i] * v->strides[i], at /= v->sizes[i];
  return position;
}

/* No NaN and no subnormal number in any dtype: their bits may change on the way. */
static void fill(tt_dtype dtype, int64_t bytes, unsigned char *out) {
  for (int64_t i = 0; i < bytes; i++) out[i] = (unsigned char)(dtype == TT_BOOL ? view_random_below(2) : 4 + view_random_below(56));
}

typedef struct view_program {
  tt_executable *executable;
  bool writes, drops_array; /* the write does not get the array */
} view_program;

/* (array, value) -> (what the view reads, the array after value was written) */
static tt_status program_make(tt_client *client, const random_view *r, view_program *out) {
  tt_arena arena = TT_ARENA_INIT;
  hlo_builder *b = hlo_builder_create(&arena, "main", true);
  const tt_view *v = &r->view;
  hlo_value array = hlo_param(b, hlo_type_make(b, r->array_dtype, r->array_rank, r->array_dims), NULL);
  hlo_value value = hlo_param(b, hlo_type_make(b, v->dtype, v->rank, v->sizes), NULL), results[2];
  out->writes = !tt_view_overlaps_itself(v);
  out->drops_array = tt_view_covers(v, r->array_dtype, r->array_numel) && view_random_below(2);
  results[0] = tt_view_read(b, array, v);
  results[1] = out->writes ? tt_view_write(b, out->drops_array ? HLO_NONE : array, array.type, v, value) : array;
  TT_CHECK(hlo_failed(b) || hlo_type_equal(results[0].type, value.type));
  TT_CHECK(hlo_failed(b) || hlo_type_equal(results[1].type, array.type));
  hlo_return(b, 2, results);
  const char *text;
  size_t size;
  tt_status status = hlo_builder_finish(b, &text, &size);
  if (!status) {
    tt_strbuf module = TT_STRBUF_INIT;
    tt_strbuf_add(&module, "module @view {\n");
    tt_strbuf_add_bytes(&module, text, size);
    tt_strbuf_add(&module, "}\n");
    status = tt_executable_compile(client, module.data, module.size, NULL, &out->executable);
    if (status) printf("%s", module.data);
    tt_strbuf_free(&module);
  }
  hlo_builder_destroy(b);
  tt_arena_free(&arena);
  return status;
}

static void expect(const random_view *r, bool writes, unsigned char *array, const unsigned char *value,
                   unsigned char *read) {
  const tt_view *v = &r->view;
  int64_t width = (int64_t)tt_dtype_bytes(v->dtype), numel = tt_view_numel(v);
  for (int64_t i = 0; i < numel; i++)
    for (int64_t k = 0; k < width; k++) {
      unsigned char byte = array[position_of(v, i) * width + k];
      read[i * width + k] = v->dtype == TT_BOOL ? byte != 0 : byte;
    }
  for (int64_t i = 0; i < numel && writes; i++)
    for (int64_t k = 0; k < width; k++) {
      unsigned char byte = value[i * width + k];
      array[position_of(v, i) * width + k] = r->array_dtype == TT_BOOL ? byte != 0 : byte;
    }
}

static tt_status run_case(tt_client *client, const random_view *r) {
  static unsigned char array[VIEW_MAX_NUMEL * 16], value[VIEW_MAX_NUMEL * 64], read[VIEW_MAX_NUMEL * 64];
  static unsigned char got_array[sizeof array], got_read[sizeof read];
  const tt_view *v = &r->view;
  int64_t array_bytes = r->array_numel * (int64_t)tt_dtype_bytes(r->array_dtype);
  int64_t view_bytes = tt_view_numel(v) * (int64_t)tt_dtype_bytes(v->dtype);
  view_program program = {0};
  tt_pjrt_buffer *inputs[2], *outputs[2];
  if (view_bytes > (int64_t)sizeof read) return TT_OK;
  TT_TRY(program_make(client, r, &program));
  fill(r->array_dtype, array_bytes, array);
  fill(v->dtype, view_bytes, value);
  TT_TRY(tt_buffer_from_host(client, 0, r->array_dtype, r->array_rank, r->array_dims, array, &inputs[0]));
  TT_TRY(tt_buffer_from_host(client, 0, v->dtype, v->rank, v->sizes, value, &inputs[1]));
  TT_TRY(tt_executable_execute(program.executable, 0, 2, inputs, NULL, outputs));
  TT_TRY(tt_buffer_to_host(client, outputs[0], got_read, (size_t)view_bytes));
  TT_TRY(tt_buffer_to_host(client, outputs[1], got_array, (size_t)array_bytes));
  expect(r, program.writes, array, value, read);
  TT_CHECK(!memcmp(read, got_read, (size_t)view_bytes));
  TT_CHECK(!memcmp(array, got_array, (size_t)array_bytes));
  for (int i = 0; i < 2; i++) tt_buffer_destroy(client, inputs[i]), tt_buffer_destroy(client, outputs[i]);
  tt_executable_destroy(program.executable);
  return TT_OK;
}

TT_TEST(on_plugin) {
  const char *path = getenv("TT_TEST_PLUGIN"), *text = getenv("TT_VIEW_CASES");
  int cases = text ? atoi(text) : 200;
  tt_plugin *plugin;
  tt_client *client;
  if (!path || !*path) {
    printf("skipped: TT_TEST_PLUGIN is not set\n");
    return;
  }
  TT_CHECK_OK(tt_plugin_load(path, &plugin));
  if (tt_test_failures) return;
  TT_CHECK_OK(tt_client_create(plugin, &client));
  if (tt_test_failures) return;
  view_random_seed();
  for (int i = 0; i < cases && !tt_test_failures; i++) {
    random_view r;
    view_random(&r);
    TT_CHECK_OK(run_case(client, &r));
    if (tt_test_failures) view_random_print(&r, i);
  }
  tt_client_destroy(client);
}
