/* Tests of csrc/base. */
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/dtype.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/strbuf.h"
#include "tests/tt_test.h"

static tt_status fails(void) { return tt_status_make(TT_INDEX_ERROR, "index %d is out of bounds", 7); }

static tt_status tries(bool fail) {
  TT_TRY(fail ? fails() : TT_OK);
  return TT_OK;
}

TT_TEST(status_messages) {
  TT_CHECK(tries(false) == TT_OK);
  tt_status s = tt_status_annotate(tries(true), "aten::%s", "index");
  TT_CHECK_STR_EQ(tt_status_message(s), "aten::index: index 7 is out of bounds");
  TT_CHECK(tt_status_get_code(s) == TT_INDEX_ERROR);
  tt_status other = tt_status_clone(s);
  tt_status_free(s);
  TT_CHECK_STR_EQ(tt_status_message(other), "aten::index: index 7 is out of bounds");
  TT_CHECK_STR_EQ(tt_status_code_name(tt_status_get_code(other)), "index error");
  TT_CHECK_STR_EQ(tt_status_code_exception(tt_status_get_code(other)), "IndexError");
  tt_status_free(other);
  TT_CHECK(tt_status_annotate(TT_OK, "x") == TT_OK);
  TT_CHECK(tt_status_clone(TT_OK) == TT_OK);
  TT_CHECK_STR_EQ(tt_status_message(TT_OK), "");
  TT_CHECK(tt_status_get_code(TT_OK) == TT_STATUS_OK);
}

TT_TEST(arena_memory_is_zeroed_and_aligned) {
  tt_arena arena = TT_ARENA_INIT;
  for (size_t i = 0; i < 2000; i++) {
    unsigned char *p = tt_arena_alloc(&arena, i % 97);
    TT_CHECK((uintptr_t)p % 16 == 0);
    for (size_t k = 0; k < i % 97; k++) {
      TT_CHECK(p[k] == 0);
      p[k] = 0xAA;
    }
  }
  unsigned char *large = tt_arena_alloc(&arena, 3 << 20);
  TT_CHECK(large[0] == 0 && large[(3 << 20) - 1] == 0);
  TT_CHECK_STR_EQ(tt_arena_printf(&arena, "%s-%d", "x", 5), "x-5");
  TT_CHECK_STR_EQ(tt_arena_copy(&arena, "abc", 4), "abc");
  tt_arena_free(&arena);
  TT_CHECK(arena.head == NULL);
  tt_arena_free(&arena);
}

TT_TEST(checked_arithmetic) {
  int64_t out;
  TT_CHECK(tt_mul_fits(1 << 30, 1 << 30, &out) && out == (int64_t)1 << 60);
  TT_CHECK(!tt_mul_fits((int64_t)1 << 40, 1 << 30, &out));
  TT_CHECK(!tt_add_fits(INT64_MAX, 1, &out));
}

TT_TEST(strbuf_grows) {
  tt_strbuf s = TT_STRBUF_INIT;
  tt_strbuf_add(&s, "a");
  for (int i = 0; i < 100; i++) tt_strbuf_printf(&s, "%040d,", i);
  tt_strbuf_add_bytes(&s, "end", 3);
  TT_CHECK_INT_EQ(s.size, 1 + 41 * 100 + 3);
  TT_CHECK_INT_EQ(strlen(s.data), s.size);
  TT_CHECK_STR_EQ(s.data + s.size - 6, "99,end");
  tt_strbuf_free(&s);
  TT_CHECK(s.data == NULL && s.size == 0);
}

TT_TEST(dtype_names_and_classes) {
  TT_CHECK_STR_EQ(tt_dtype_name(TT_BF16), "bfloat16");
  TT_CHECK_STR_EQ(tt_dtype_name(TT_DTYPE_NONE), "none");
  TT_CHECK_INT_EQ(tt_dtype_bytes(TT_C128), 16);
  TT_CHECK(tt_dtype_is_integral(TT_BOOL) && !tt_dtype_is_int(TT_BOOL) && tt_dtype_is_float(TT_F8E5M2));
  TT_CHECK(tt_dtype_real(TT_C64) == TT_F32 && tt_dtype_real(TT_C128) == TT_F64 && tt_dtype_real(TT_I8) == TT_I8);
  TT_CHECK(tt_dtype_complex(TT_F64) == TT_C128 && tt_dtype_complex(TT_BF16) == TT_C64);
  TT_CHECK(tt_dtype_opmath(TT_BF16) == TT_F32 && tt_dtype_opmath(TT_F8E4M3FN) == TT_F32);
  TT_CHECK(tt_dtype_opmath(TT_F64) == TT_F64 && tt_dtype_opmath(TT_I8) == TT_I8);
}

TT_TEST(dtype_promotion) {
  TT_CHECK(tt_dtype_promote(TT_U8, TT_I8) == TT_I16);
  TT_CHECK(tt_dtype_promote(TT_F16, TT_BF16) == TT_F32);
  TT_CHECK(tt_dtype_promote(TT_I64, TT_F16) == TT_F16);
  TT_CHECK(tt_dtype_promote(TT_F64, TT_C64) == TT_C128);
  TT_CHECK(tt_dtype_promote(TT_U16, TT_I32) == TT_DTYPE_NONE);
  TT_CHECK(tt_dtype_promote(TT_F32, TT_U16) == TT_F32);
  TT_CHECK(tt_dtype_promote(TT_F8E5M2, TT_F32) == TT_DTYPE_NONE);
  for (tt_dtype a = 0; a < TT_DTYPE_COUNT; a++) {
    TT_CHECK(tt_dtype_promote(a, a) == a);
    for (tt_dtype b = 0; b < TT_DTYPE_COUNT; b++) TT_CHECK(tt_dtype_promote(a, b) == tt_dtype_promote(b, a));
  }
}

/* TT_TEST_DTYPES names a file: gets "a b promoted can_cast" for every pair, to be compared with PyTorch. */
TT_TEST(dtype_table) {
  const char *path = getenv("TT_TEST_DTYPES");
  FILE *file = path ? fopen(path, "w") : NULL;
  if (!file) return;
  for (tt_dtype a = 0; a < TT_DTYPE_COUNT; a++) {
    for (tt_dtype b = 0; b < TT_DTYPE_COUNT; b++) {
      fprintf(file, "%s %s %s %d\n", tt_dtype_name(a), tt_dtype_name(b), tt_dtype_name(tt_dtype_promote(a, b)),
              tt_dtype_can_cast(a, b));
    }
  }
  fclose(file);
}

TT_TEST(env_parsing) {
  bool flag = false;
  TT_CHECK(tt_env_parse_bool("On", &flag) && flag);
  TT_CHECK(tt_env_parse_bool("0", &flag) && !flag);
  TT_CHECK(!tt_env_parse_bool("maybe", &flag) && !tt_env_parse_bool("", &flag));
  int64_t bytes = 0;
  TT_CHECK(tt_env_parse_bytes("16GiB", &bytes) && bytes == (int64_t)16 << 30);
  TT_CHECK(tt_env_parse_bytes("123", &bytes) && bytes == 123);
  TT_CHECK(tt_env_parse_bytes("2kib", &bytes) && bytes == 2048);
  TT_CHECK(!tt_env_parse_bytes("-1", &bytes) && !tt_env_parse_bytes("5 apples", &bytes) &&
           !tt_env_parse_bytes("", &bytes) && !tt_env_parse_bytes("9999999999TiB", &bytes));
}

TT_TEST(env_is_read_once_and_bad_values_are_named) {
  setenv("TPU_LIBRARY_PATH", "/a/plugin.so", 1);
  setenv("TORCH_TPU_LAUNCH_BLOCKING", "yes", 1);
  setenv("TORCH_TPU_DEFER_AND_FUSE", "sometimes", 1); /* bad */
  setenv("TORCH_TPU_CPU_FALLBACK", "err", 1);         /* bad: a prefix is not a choice */
  setenv("TORCH_TPU_HBM_LIMIT", "3MiB", 1);
  unsetenv("TORCH_TPU_LOG");
  fflush(stderr);
  FILE *capture = tmpfile();
  int saved = dup(STDERR_FILENO);
  dup2(fileno(capture), STDERR_FILENO);
  bool fuse = tt_env_bool(TT_ENV_TORCH_TPU_DEFER_AND_FUSE);
  fflush(stderr);
  dup2(saved, STDERR_FILENO);
  close(saved);
  rewind(capture);
  char text[1024] = "";
  size_t size = fread(text, 1, sizeof text - 1, capture);
  text[size] = 0;
  fclose(capture);
  TT_CHECK_STR_EQ(text,
                  "torch_tpu: TORCH_TPU_DEFER_AND_FUSE=sometimes is not understood (expected 1 or 0); using 0\n"
                  "torch_tpu: TORCH_TPU_CPU_FALLBACK=err is not understood (expected warn|error|silent); using warn\n");
  TT_CHECK(!fuse);
  TT_CHECK_STR_EQ(tt_env_string(TT_ENV_TPU_LIBRARY_PATH), "/a/plugin.so");
  TT_CHECK_STR_EQ(tt_env_string(TT_ENV_TORCH_TPU_CPU_FALLBACK), "warn");
  TT_CHECK_STR_EQ(tt_env_string(TT_ENV_TORCH_TPU_LOG), "");
  TT_CHECK(tt_env_bool(TT_ENV_TORCH_TPU_LAUNCH_BLOCKING));
  TT_CHECK_INT_EQ(tt_env_number(TT_ENV_TORCH_TPU_HBM_LIMIT), 3 << 20);
  setenv("TPU_LIBRARY_PATH", "/other.so", 1);
  TT_CHECK_STR_EQ(tt_env_string(TT_ENV_TPU_LIBRARY_PATH), "/a/plugin.so");
  for (int i = 0; i < TT_ENV_COUNT; i++) TT_CHECK(*tt_env_table[i].name && *tt_env_table[i].description);
}

static int bits_changed(tt_hash128 a, tt_hash128 b) {
  return __builtin_popcountll(a.lo ^ b.lo) + __builtin_popcountll(a.hi ^ b.hi);
}

TT_TEST(hash_avalanche) {
  for (size_t n = 1; n <= 9; n++) {
    int lowest = 128, total = 0, count = 0;
    for (int zero = 0; zero < 2; zero++) {
      uint64_t words[9];
      for (size_t i = 0; i < n; i++) words[i] = zero ? 0 : i * 0x123456789ABCDEFu;
      tt_hash128 before = tt_hash_words(words, n);
      for (size_t bit = 0; bit < n * 64; bit++, count++) {
        words[bit / 64] ^= (uint64_t)1 << bit % 64;
        int changed = bits_changed(before, tt_hash_words(words, n));
        words[bit / 64] ^= (uint64_t)1 << bit % 64;
        total += changed;
        if (changed < lowest) lowest = changed;
      }
    }
    TT_CHECK(lowest > 30);
    TT_CHECK(total > 61 * count && total < 67 * count);
  }
}

/* Every bit of every length counts, the length itself too, and where the bytes lie does not. */
TT_TEST(hash_of_bytes) {
  enum { MOST = 70 };
  unsigned char bytes[MOST + 1] = {0}, moved[MOST + 8];
  for (size_t n = 0; n <= MOST; n++) {
    for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)(37 * i + n);
    tt_hash128 before = tt_hash_bytes(bytes, n);
    memcpy(moved + n % 8, bytes, n);
    TT_CHECK(tt_hash_equal(before, tt_hash_bytes(moved + n % 8, n)));
    bytes[n] = 0;
    TT_CHECK(bits_changed(before, tt_hash_bytes(bytes, n + 1)) > 30);
    for (size_t bit = 0; bit < 8 * n; bit++) {
      bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
      TT_CHECK(bits_changed(before, tt_hash_bytes(bytes, n)) > 30);
      bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
  }
}

static int compare_hashes(const void *a, const void *b) {
  const tt_hash128 *x = a, *y = b;
  return x->lo != y->lo ? (x->lo < y->lo ? -1 : 1) : x->hi != y->hi ? (x->hi < y->hi ? -1 : 1) : 0;
}

/* Small numbers in neighbouring words, and arrays of zeros of every length: the keys that shapes make. */
TT_TEST(hash_has_no_collisions_on_small_numbers) {
  enum { SIDE = 48, ZEROS = 64, COUNT = SIDE * SIDE * SIDE + ZEROS };
  static tt_hash128 seen[COUNT];
  static const uint64_t zeros[ZEROS];
  int n = 0;
  for (uint64_t i = 0; i < SIDE * SIDE * SIDE; i++) {
    seen[n++] = tt_hash_words((uint64_t[]){i % SIDE, i / SIDE % SIDE, i / SIDE / SIDE}, 3);
  }
  for (size_t length = 0; length < ZEROS; length++) seen[n++] = tt_hash_words(zeros, length);
  qsort(seen, COUNT, sizeof *seen, compare_hashes);
  int same_half = 0;
  for (int i = 1; i < COUNT; i++) same_half += seen[i].lo == seen[i - 1].lo;
  /* {0,0,0} appears in both sets: the only equal pair, and no two others share even one half */
  TT_CHECK_INT_EQ(same_half, 1);
}
