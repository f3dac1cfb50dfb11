/* Finding and loading plugins, and compile options: what needs no plugin but the mock (TT_MOCK_PLUGIN). */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "pjrt/internal.h"
#include "pjrt/test_support.h"

/* ---- a folder to play with ------------------------------------------------------------------------------------- */

static char folder[64];

static void folder_make(void) {
  strcpy(folder, "/tmp/tt_load_test.XXXXXX");
  TT_CHECK(mkdtemp(folder));
}

static void folder_remove(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -r '%s'", folder);
  TT_CHECK(system(command) == 0);
}

/* The path of a file below the folder; the next call overwrites it. */
static const char *below(const char *file) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, file);
  return path;
}

/* Makes the file and the folders on its way. */
static const char *put(const char *file, const void *data, size_t size) {
  char path[512];
  snprintf(path, sizeof path, "%s", below(file));
  for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
    *slash = 0;
    TT_CHECK(!mkdir(path, 0755) || errno == EEXIST);
    *slash = '/';
  }
  FILE *f = fopen(path, "wb");
  TT_CHECK(f && (!size || fwrite(data, size, 1, f)));
  if (f) fclose(f);
  return below(file);
}

/* A copy of the mock is another plugin, with its own state. */
static const char *put_mock(const char *file) {
  const char *mock = getenv("TT_MOCK_PLUGIN");
  tt_strbuf bytes = TT_STRBUF_INIT;
  FILE *f = mock ? fopen(mock, "rb") : NULL;
  char block[4096];
  for (size_t n; f && (n = fread(block, 1, sizeof block, f));) tt_strbuf_add_bytes(&bytes, block, n);
  if (f) fclose(f);
  TT_CHECK(bytes.size);
  const char *path = put(file, bytes.data, bytes.size);
  tt_strbuf_free(&bytes);
  return path;
}

#define TEST_WITH_FOLDER(name)         \
  static void in_folder_##name(void);  \
  TT_TEST(name) {                      \
    folder_make();                     \
    in_folder_##name();                \
    folder_remove();                   \
  }                                    \
  static void in_folder_##name(void)

/* ---- find ------------------------------------------------------------------------------------------------------ */

static void check_found(const char *root, const char *const *dirs, int count, const char *expected) {
  char *path = NULL;
  TT_CHECK_OK(tt_plugin_find_below(root, dirs, count, &path));
  TT_CHECK_STR_EQ(path, below(expected));
  free(path);
}

TEST_WITH_FOLDER(finds_cpu_plugins_in_their_order) {
  unsetenv("TPU_LIBRARY_PATH");
  char first[80], second[80], *path = NULL;
  snprintf(first, sizeof first, "%s/a", folder);
  snprintf(second, sizeof second, "%s/b", folder);
  const char *const dirs[] = {first, second};
  CHECK_FAILS(tt_plugin_find_below(folder, dirs, 2, &path), TT_UNAVAILABLE, "lammps-jax-pjrt-cpu");
  CHECK_FAILS(tt_plugin_find_below(folder, dirs, 2, &path), TT_UNAVAILABLE, second);
  CHECK_FAILS(tt_plugin_find_below(folder, NULL, 0, &path), TT_UNAVAILABLE, "no folder at all");
  TT_CHECK(!path);
  static const char *const files[] = {"a/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so",
                                      "b/fastatomstruct_xla_cpu/libpjrt_cpu.so",
                                      "b/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so"};
  for (int i = 0; i < 3; i++) { /* each is preferred to those before */
    put(files[i], "", 0);
    check_found(folder, dirs, 2, files[i]);
  }
}

TEST_WITH_FOLDER(finds_libtpu_where_there_is_a_tpu) {
  unsetenv("TPU_LIBRARY_PATH");
  const char *const dirs[] = {folder};
  put("lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so", "", 0);
  put("dev/accel/accel0", "", 0); /* some other accelerator */
  TT_CHECK(!tt_machine_has_tpu(folder));
  put("dev/accel0", "", 0);
  TT_CHECK(tt_machine_has_tpu(folder));
  char *path = NULL;
  CHECK_FAILS(tt_plugin_find_below(folder, dirs, 1, &path), TT_UNAVAILABLE, "pip install libtpu");
  put("libtpu/libtpu.so", "", 0);
  check_found(folder, dirs, 1, "libtpu/libtpu.so");
}

TEST_WITH_FOLDER(a_vfio_group_is_a_tpu_only_with_a_google_device) {
  put("sys/bus/pci/devices/0000:00:04.0/vendor", "0x8086\n", 7);
  put("dev/vfio/vfio", "", 0);
  TT_CHECK(!tt_machine_has_tpu(folder));
  put("dev/vfio/0", "", 0);
  TT_CHECK(!tt_machine_has_tpu(folder));
  put("sys/bus/pci/devices/0000:00:05.0/vendor", "0x1ae0\n", 7);
  TT_CHECK(tt_machine_has_tpu(folder));
  TT_CHECK(!unlink(below("dev/vfio/0")));
  TT_CHECK(!tt_machine_has_tpu(folder));
}

TEST_WITH_FOLDER(the_users_choice_comes_first) {
  const char *const dirs[] = {folder};
  put("lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so", "", 0);
  char *path = NULL;
  setenv("TPU_LIBRARY_PATH", "", 1);
  check_found(folder, dirs, 1, "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so");
  setenv("TPU_LIBRARY_PATH", "/no/such/file.so", 1);
  CHECK_FAILS(tt_plugin_find(dirs, 1, &path), TT_UNAVAILABLE, "TPU_LIBRARY_PATH is set to '/no/such/file.so'");
  setenv("TPU_LIBRARY_PATH", folder, 1);
  CHECK_FAILS(tt_plugin_find(dirs, 1, &path), TT_UNAVAILABLE, "not a file");
  setenv("TPU_LIBRARY_PATH", put("mine.so", "", 0), 1);
  check_found("", dirs, 1, "mine.so");
  unsetenv("TPU_LIBRARY_PATH");
}

/* ---- load ------------------------------------------------------------------------------------------------------ */

TEST_WITH_FOLDER(broken_files_give_an_error) {
  tt_plugin *p = NULL;
  CHECK_FAILS(tt_plugin_load(below("absent.so"), &p), TT_UNAVAILABLE, "absent.so': No such file");
  CHECK_FAILS(tt_plugin_load(put("text.so", "not a library", 13), &p), TT_UNAVAILABLE, "text.so");
  CHECK_FAILS(tt_plugin_load(put("empty.so", "", 0), &p), TT_UNAVAILABLE, "file too short");
  CHECK_FAILS(tt_plugin_load(folder, &p), TT_UNAVAILABLE, folder);
  TT_CHECK(!p);
}

TEST_WITH_FOLDER(broken_tables_give_an_error) {
  static const struct {
    const char *fault, *message;
  } cases[] = {{"null", "no function table"},
               {"major", "PJRT API 7.81"},
               {"short", "lacks PJRT_Client_Create"},
               {"missing", "lacks PJRT_LoadedExecutable_Execute"}};
  tt_plugin *p = NULL;
  for (int i = 0; i < 4; i++) {
    char name[32];
    snprintf(name, sizeof name, "mock_%s.so", cases[i].fault);
    setenv("TT_MOCK_TABLE", cases[i].fault, 1);
    CHECK_FAILS(tt_plugin_load(put_mock(name), &p), TT_UNAVAILABLE, cases[i].message);
  }
  unsetenv("TT_MOCK_TABLE");
  Dl_info libc;
  TT_CHECK(dladdr(dlsym(RTLD_DEFAULT, "gnu_get_libc_version"), &libc));
  CHECK_FAILS(tt_plugin_load(libc.dli_fname, &p), TT_UNAVAILABLE, "no function GetPjrtApi");
  TT_CHECK(!p);
}

TEST_WITH_FOLDER(one_file_is_one_plugin) {
  tt_plugin *first = NULL, *again = NULL, *other = NULL;
  char link[512];
  snprintf(link, sizeof link, "%s", below("link.so"));
  TT_CHECK(!symlink(put_mock("one.so"), link));
  TT_CHECK_OK(tt_plugin_load(below("one.so"), &first));
  TT_CHECK_OK(tt_plugin_load(link, &again));
  TT_CHECK_OK(tt_plugin_load(put_mock("two.so"), &other));
  TT_CHECK(first && first == again && first != other);
  TT_CHECK_STR_EQ(tt_plugin_path(first), below("one.so"));
  TT_CHECK(getenv("TF_CPP_MIN_LOG_LEVEL"));
}

/* ---- compile options ------------------------------------------------------------------------------------------- */

static void check_options(const tt_compile_options *options, bool portable, const char *expected, size_t size) {
  uint8_t *data = NULL;
  size_t actual = 0;
  TT_CHECK_OK(tt_compile_options_write(options, portable, &data, &actual));
  TT_CHECK_INT_EQ(actual, size);
  TT_CHECK(actual == size && !memcmp(data, expected, size));
  free(data);
}

#define CHECK_OPTIONS(options, portable, expected) check_options(options, portable, expected, sizeof expected - 1)
#define ANY_DEVICE "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
#define ONE_REPLICA "\x1a\x0f" ANY_DEVICE "\x20\x01\x28\x01"

TT_TEST(compile_options_are_the_expected_bytes) {
  CHECK_OPTIONS(NULL, false, ONE_REPLICA);
  CHECK_OPTIONS(NULL, true, ONE_REPLICA "\x20\x01");
  tt_compile_options o = {.replicas = 2, .partitions = 300, .use_spmd = true, .use_shardy = true};
  CHECK_OPTIONS(&o, false, "\x1a\x15" ANY_DEVICE "\x20\x02\x28\xac\x02\x30\x01\x98\x01\x01");
  o = (tt_compile_options){.effort = 19};
  CHECK_OPTIONS(&o, false, "\x1a\x12" ANY_DEVICE "\x20\x01\x28\x01\xc0\x01\x13");
  o = (tt_compile_options){.env_overrides = " a=true b=-1\tc=0.5 d=x=y e= f=\"7\"\n"};
  CHECK_OPTIONS(&o, false,
                ONE_REPLICA "\x3a\x07\x0a\x01" "a\x12\x02\x10\x01"
                            "\x3a\x10\x0a\x01" "b\x12\x0b\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
                            "\x3a\x0e\x0a\x01" "c\x12\x09\x21\x00\x00\x00\x00\x00\x00\xe0\x3f"
                            "\x3a\x0a\x0a\x01" "d\x12\x05\x0a\x03" "x=y"
                            "\x3a\x07\x0a\x01" "e\x12\x02\x0a\x00"
                            "\x3a\x08\x0a\x01" "f\x12\x03\x0a\x01" "7");
  o.env_overrides = "";
  CHECK_OPTIONS(&o, false, ONE_REPLICA);
  uint8_t *data;
  size_t size;
  o.env_overrides = "=1";
  CHECK_FAILS(tt_compile_options_serialize(&o, &data, &size), TT_INVALID_ARGUMENT, "'=1'");
}
