/* Abstract devices: programs of a TPU are captured without a plugin, and nothing has contents. */
#include <dirent.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "eager/graph.h"
#include "eager/loaded.h"
#include "ops/shard.h"
#include "eager/eager_fixture.h"

static tt_device *abstract_open(void) {
  tt_device *d = NULL;
  TT_CHECK_OK(tt_device_open(&(tt_device_options){.abstract = true}, &d));
  if (!d) exit(1);
  TT_CHECK(tt_device_describe(d).is_abstract && !tt_device_describe(d).is_cpu);
  TT_CHECK_STR_EQ(tt_device_describe(d).platform, "tpu");
  return d;
}

#define ABSTRACT_TEST(name)                  \
  static void on_abstract_##name(tt_device *d); \
  TT_TEST(name) {                            \
    tt_device *d = abstract_open();          \
    on_abstract_##name(d);                   \
    device_end(d);                           \
  }                                          \
  static void on_abstract_##name(tt_device *d)

/* A float array that is declared alone. */
static tensor declared(tt_device *d, const int64_t *dims) {
  tensor t = tensor_over(tt_storage_create(d, 4 * dims[0] * dims[1]), TT_F32, 2, dims);
  TT_CHECK_OK(tt_storage_declare(t.storage, TT_F32, 2, dims));
  return t;
}

static void check_refused(tt_status status, const char *what) {
  TT_CHECK_INT_EQ(tt_status_get_code(status), TT_UNAVAILABLE);
  if (!strstr(tt_status_message(status), what) || !strstr(tt_status_message(status), "this device is abstract"))
    TT_CHECK_FAILED("%s", tt_status_message(status));
  tt_status_free(status);
}

ABSTRACT_TEST(a_capture_is_the_program_of_a_tpu) {
  tensor like = declared(d, (const int64_t[]){8, 4}), x = like, table = declared(d, (const int64_t[]){8, 4});
  tt_capture *c = NULL;
  TT_CHECK_OK(tt_capture_begin(d, &c));
  TT_CHECK_OK(tt_capture_input(c, like.storage, &x.storage));
  tt_capture_label(c, "forward one");
  tensor sorted = CALL(d, "cumsum", arg(&x), ARG_INT(0), ARG_NONE), sum = CALL(d, "add.Tensor", arg(&sorted), arg(&table), ARG_ONE);
  tt_graph *g = NULL;
  TT_CHECK_OK(tt_capture_end(c, "step", 1, &sum.storage, &g));
  TT_CHECK_INT_EQ(tt_graph_array_count(g), 2);
  TT_CHECK_INT_EQ(tt_graph_array_source(g, 0), 0);
  TT_CHECK_INT_EQ(tt_graph_array_source(g, 1), -1); /* what was there before the capture */
  TT_CHECK_INT_EQ(tt_graph_result_output(g, 0), 0);
  tt_strbuf text = TT_STRBUF_INIT;
  TT_CHECK_OK(tt_graph_print(g, &text));
  TT_CHECK(strstr(text.data, "module @step") && strstr(text.data, "loc(\"forward one aten::cumsum\")"));
  TT_CHECK(!strstr(text.data, "tt_")); /* none of the CPU's kernels */
  tt_strbuf_free(&text);
  check_refused(tt_graph_require(g), "step");
  tt_graph_destroy(g);
  drop(&like), drop(&x), drop(&table), drop(&sorted), drop(&sum);
}

ABSTRACT_TEST(nothing_has_contents_and_nothing_runs) {
  tensor t = declared(d, (const int64_t[]){2, 2});
  tt_host_view view;
  float x;
  check_refused(tt_storage_map(t.storage, TT_F32, &view), "contents");
  check_refused(tt_storage_read_element(t.storage, TT_F32, 1, &x), "contents");
  TT_CHECK_OK(tt_storage_upload(t.storage, TT_F32, 2, (const int64_t[]){2, 2}, (const float[]){1, 2, 3, 4}));
  check_refused(tt_storage_map(t.storage, TT_F32, &view), "contents"); /* they are not kept */
  tt_arg args[1] = {arg(&t)};
  tt_call call = {.op = tt_op_find("exp"), .args = args, .arg_count = 1};
  tt_new_result result;
  int count;
  check_refused(tt_dispatch(d, &call, NULL, &result, 1, &count), "aten::exp");
  TT_CHECK_OK(tt_device_synchronize(d));
  drop(&t);
}

ABSTRACT_TEST(arrays_are_placed_on_devices) {
  tensor like = declared(d, (const int64_t[]){8, 4}), x = like;
  tt_capture *c = NULL;
  TT_CHECK_OK(tt_capture_begin(d, &c));
  TT_CHECK_OK(tt_capture_input(c, like.storage, &x.storage));
  tt_new_result results[3];
  tt_storage *storages[3];
  for (int i = 0; i < 3; i++) {
    tt_arg args[3] = {arg(&x), {.kind = TT_ARG_STRING, .string = i ? "{replicated}" : "{devices=[2,1]<=[2]}"}, ARG_NONE};
    if (i == 2) args[2] = arg(&x);
    tt_call call = {.op = &tt_shard_op, .args = args, .arg_count = 3};
    int count;
    TT_CHECK_OK(tt_dispatch(d, &call, NULL, &results[i], 1, &count));
    storages[i] = results[i].storage;
  }
  tt_graph *g = NULL;
  TT_CHECK_OK(tt_capture_end(c, "placed", 3, storages, &g));
  tt_strbuf text = TT_STRBUF_INIT;
  TT_CHECK_OK(tt_graph_print(g, &text));
  TT_CHECK(strstr(text.data, "call_target_name = \"Sharding\", mhlo.sharding = \"{devices=[2,1]<=[2]}\""));
  const char *barrier = strstr(text.data, "optimization_barrier");
  TT_CHECK(barrier && !strstr(barrier + 1, "optimization_barrier"));
  tt_strbuf_free(&text);
  tt_graph_destroy(g);
  for (int i = 0; i < 3; i++) tt_storage_destroy(storages[i]);
  drop(&like), drop(&x);
}

/* ---- rehearsals ---------------------------------------------------------------------------------------------------- */

/* Counts the folder's files that end so, and removes them. */
static int take_files(const char *folder, const char *ending) {
  int count = 0;
  DIR *dir = opendir(folder);
  for (const struct dirent *e; (e = readdir(dir));) {
    const char *dot = strrchr(e->d_name, '.');
    if (!dot || strcmp(dot, ending)) continue;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    count += !unlink(path);
  }
  closedir(dir);
  return count;
}

static void check_zeros(const tensor *t, int64_t count) {
  tt_host_view view;
  TT_CHECK_OK(tt_storage_map(t->storage, TT_F32, &view));
  for (int64_t i = 0; i < count; i++) TT_CHECK(((const float *)view.data)[i] == 0);
  tt_storage_unmap(&view);
}

/* Calls run, each kind is written down once, in place and with numbers, and what is read is zero; deferred ones in regions. */
static void rehearse(bool defer, int programs) {
  char folder[] = "/tmp/tt_rehearse_XXXXXX";
  TT_CHECK(mkdtemp(folder));
  tt_device *d = NULL;
  TT_CHECK_OK(tt_device_open(&(tt_device_options){.abstract = true, .rehearse_dir = folder, .defer = defer}, &d));
  tensor x = tensor_over(tt_storage_create(d, 32), TT_F32, 2, (const int64_t[]){2, 4});
  TT_CHECK_OK(tt_storage_upload(x.storage, TT_F32, 2, x.sizes, (const float[]){1, 2, 3, 4, 5, 6, 7, 8}));
  for (int i = 0; i < 3; i++) {
    tensor y = CALL(d, "exp", arg(&x)), z = CALL(d, "mul.Tensor", arg(&y), ARG_FLOAT(2.5 + i));
    check_zeros(&z, 8);
    drop(&y), drop(&z);
  }
  TT_CHECK_OK(tt_device_synchronize(d));
  TT_CHECK_INT_EQ(take_files(folder, ".mlir"), programs);
  TT_CHECK_INT_EQ(take_files(folder, ".about"), programs);
  check_refused(tt_device_flush(d, TT_FLUSH_DATA), "a size that depends on data");
  tt_loaded *module;
  check_refused(tt_loaded_create(d, "module {}", 9, &module), "a StableHLO module");
  TT_CHECK(!rmdir(folder));
  if (!defer) { /* nowhere to write to */
    tt_arg args[1] = {arg(&x)};
    tt_call call = {.op = tt_op_find("neg"), .args = args, .arg_count = 1};
    tt_new_result result;
    int count;
    tt_status status = tt_dispatch(d, &call, NULL, &result, 1, &count);
    TT_CHECK(status && strstr(tt_status_message(status), "a rehearsal can't write"));
    tt_status_free(status);
  }
  drop(&x);
  device_end(d);
}

TT_TEST(a_rehearsal_writes_down_what_would_be_compiled) { rehearse(false, 2); }
TT_TEST(a_rehearsal_has_regions) { rehearse(true, 1); }

TT_TEST(a_device_with_contents_takes_no_declarations) {
  tt_device *d = mock_open();
  tt_storage *s = tt_storage_create(d, 16);
  tt_status status = tt_storage_declare(s, TT_F32, 2, (const int64_t[]){2, 2});
  TT_CHECK_INT_EQ(tt_status_get_code(status), TT_INTERNAL);
  tt_status_free(status);
  tt_storage_destroy(s);
  mock_end(d);
}
