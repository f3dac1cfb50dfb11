/* Random views against an oracle that lists every position: what is said about them, and the steps of reading and
 * writing, applied here to arrays in which every byte has its own number.
 *
 * TT_VIEW_CASES and TT_VIEW_SEED choose how many and which. */
#include "tests/tt_test.h"

#include <stdlib.h>

#include "view/decompose.h"
#include "view/view_random.h"

enum { MAX_BYTES = VIEW_MAX_NUMEL * 16 };

typedef struct array { /* of bytes, each a number */
  int64_t count;
  int32_t *bytes;
} array;

static array array_make(int64_t count) {
  array a = {count, tt_malloc((size_t)count * sizeof(int32_t))};
  for (int64_t i = 0; i < count; i++) a.bytes[i] = -1;
  return a;
}

/* ---- the steps, on numbers ---------------------------------------------------------------------------------- */

static int64_t numel_of(int rank, const int64_t *dims) {
  int64_t n = 1;
  for (int i = 0; i < rank; i++) n *= dims[i];
  return n;
}

static void unravel(int64_t at, int rank, const int64_t *dims, int64_t *out_index) {
  for (int i = rank - 1; i >= 0; i--) out_index[i] = at % dims[i], at /= dims[i];
}

/* Which element before the step is element `at` after it? -1: none. */
static int64_t source_of(const tt_view_step *s, int64_t at) {
  const tt_view_step *before = s - 1;
  int64_t index[HLO_MAX_RANK], from[HLO_MAX_RANK], flat = 0;
  unravel(at, s->rank, s->dims, index);
  switch (s->kind) {
  case TT_VIEW_PAD: return at < before->dims[0] ? at : -1;
  case TT_VIEW_GATHER:
    flat = s->start[0];
    for (int i = 0; i < s->rank; i++) flat += index[i] * s->stride[i];
    return flat;
  case TT_VIEW_SLICE:
    for (int i = 0; i < s->rank; i++) from[i] = s->start[i] + index[i] * s->stride[i];
    break;
  case TT_VIEW_TRANSPOSE:
    for (int i = 0; i < s->rank; i++) from[s->map[i]] = index[i];
    break;
  case TT_VIEW_BROADCAST:
    for (int i = 0; i < before->rank; i++) from[i] = before->dims[i] == 1 ? 0 : index[s->map[i]];
    break;
  default: return at;
  }
  for (int i = 0; i < before->rank; i++) {
    TT_CHECK(from[i] >= 0 && from[i] < before->dims[i]);
    flat = flat * before->dims[i] + from[i];
  }
  return flat;
}

/* Forward: out gets a's elements. Inverse: a's elements are replaced by out's. */
static void apply_step(const tt_view_step *s, array a, array out, bool inverse) {
  int64_t width = (int64_t)tt_dtype_bytes(s->dtype);
  if (s->kind == TT_VIEW_BITCAST) width = 1;
  for (int64_t i = 0; i < out.count / width; i++) {
    int64_t from = s->kind == TT_VIEW_BITCAST ? i : source_of(s, i);
    for (int64_t k = 0; k < width && from >= 0; k++) {
      if (inverse) a.bytes[from * width + k] = out.bytes[i * width + k];
      else out.bytes[i * width + k] = a.bytes[from * width + k];
    }
  }
}

static void check_step(const tt_view_step *s) {
  const tt_view_step *before = s - 1;
  int64_t a = numel_of(before->rank, before->dims), b = numel_of(s->rank, s->dims);
  int64_t a_bytes = a * (int64_t)tt_dtype_bytes(before->dtype), b_bytes = b * (int64_t)tt_dtype_bytes(s->dtype);
  if (s->kind == TT_VIEW_RESHAPE) TT_CHECK_INT_EQ(a, b);
  if (s->kind == TT_VIEW_BITCAST) TT_CHECK_INT_EQ(a_bytes, b_bytes);
  else TT_CHECK(before->dtype == s->dtype);
  if (s->kind == TT_VIEW_PAD || s->kind == TT_VIEW_GATHER) TT_CHECK_INT_EQ(before->rank, 1);
  if (s->kind == TT_VIEW_SLICE || s->kind == TT_VIEW_TRANSPOSE) TT_CHECK_INT_EQ(before->rank, s->rank);
}

/* ---- the oracle --------------------------------------------------------------------------------------------- */

static int64_t position_of(const tt_view *v, int64_t at) {
  int64_t index[HLO_MAX_RANK], position = v->offset;
  unravel(at, v->rank, v->sizes, index);
  for (int i = 0; i < v->rank; i++) position += index[i] * v->strides[i];
  return position;
}

static void check_predicates(const random_view *r) {
  const tt_view *v = &r->view;
  int64_t numel = tt_view_numel(v), extent = 0, distinct = 0, perm_sizes[HLO_MAX_RANK], strides[HLO_MAX_RANK];
  static unsigned char seen[MAX_BYTES];
  bool contiguous = true, overlaps = false;
  memset(seen, 0, sizeof seen);
  for (int64_t i = 0; i < numel; i++) {
    int64_t at = position_of(v, i);
    if (at + 1 > extent) extent = at + 1;
    if (at != v->offset + i) contiguous = false;
    if (seen[at]) overlaps = true;
    else distinct++;
    seen[at] = 1;
  }
  TT_CHECK_INT_EQ(tt_view_extent(v), extent);
  TT_CHECK(tt_view_is_contiguous(v) == contiguous);
  TT_CHECK(tt_view_overlaps_itself(v) == overlaps);
  int64_t array_bytes = r->array_numel * (int64_t)tt_dtype_bytes(r->array_dtype);
  int64_t view_bytes = (int64_t)tt_dtype_bytes(v->dtype);
  TT_CHECK(tt_view_covers(v, r->array_dtype, r->array_numel) ==
           (array_bytes == 0 || (!overlaps && distinct * view_bytes == array_bytes)));
  int perm[HLO_MAX_RANK];
  uint64_t used = 0;
  bool dense = !overlaps && extent == numel && distinct == numel;
  TT_CHECK(tt_view_is_permuted_dense(v, perm) == dense);
  if (!dense || numel == 0) return;
  for (int i = 0; i < v->rank; i++) perm_sizes[i] = v->sizes[perm[i]], used |= UINT64_C(1) << perm[i];
  TT_CHECK_INT_EQ(__builtin_popcountll(used), v->rank);
  tt_view_contiguous_strides(v->rank, perm_sizes, strides);
  for (int i = 0; i < v->rank; i++) TT_CHECK(v->sizes[perm[i]] == 1 || v->strides[perm[i]] == strides[i]);
}

static int check_steps(const random_view *r) {
  const tt_view *v = &r->view;
  static tt_view_plan plan;
  array states[TT_VIEW_MAX_STEPS];
  int64_t width = (int64_t)tt_dtype_bytes(v->dtype), numel = tt_view_numel(v);
  tt_status status = tt_view_decompose(v, r->array_dtype, r->array_rank, r->array_dims, &plan);
  TT_CHECK(!status);
  if (status) return tt_status_free(status), 0;
  bool gathers = false;
  for (int i = 0; i < plan.count; i++) {
    const tt_view_step *s = &plan.steps[i];
    states[i] = array_make(numel_of(s->rank, s->dims) * (int64_t)tt_dtype_bytes(s->dtype));
    gathers = gathers || s->kind == TT_VIEW_GATHER;
    if (i == 0) {
      for (int64_t k = 0; k < states[0].count; k++) states[0].bytes[k] = (int32_t)k;
    } else {
      check_step(s);
      apply_step(s, states[i - 1], states[i], false);
    }
  }
  const tt_view_step *last = &plan.steps[plan.count - 1];
  TT_CHECK(last->rank == v->rank && last->dtype == v->dtype && !memcmp(last->dims, v->sizes, (size_t)v->rank * 8));
  array expected = array_make(states[0].count), got = states[plan.count - 1];
  memcpy(expected.bytes, states[0].bytes, (size_t)expected.count * sizeof(int32_t));
  bool right = got.count == numel * width;
  for (int64_t i = 0; i < numel && right; i++)
    for (int64_t k = 0; k < width; k++) {
      int64_t at = position_of(v, i) * width + k;
      right = right && got.bytes[i * width + k] == at;
      expected.bytes[at] = (int32_t)(1000000 + i * width + k);
    }
  TT_CHECK(right);
  if (!tt_view_overlaps_itself(v)) {
    for (int64_t i = 0; i < got.count; i++) got.bytes[i] = (int32_t)(1000000 + i);
    for (int i = plan.count - 1; i > 0; i--) apply_step(&plan.steps[i], states[i - 1], states[i], true);
    TT_CHECK(!memcmp(states[0].bytes, expected.bytes, (size_t)expected.count * sizeof(int32_t)));
  }
  for (int i = 0; i < plan.count; i++) free(states[i].bytes);
  free(expected.bytes);
  return gathers ? -1 : plan.count - 1;
}

TT_TEST(random_views) {
  const char *text = getenv("TT_VIEW_CASES");
  int cases = text ? atoi(text) : 40000, steps[TT_VIEW_MAX_STEPS] = {0}, gathers = 0;
  view_random_seed();
  for (int i = 0; i < cases && !tt_test_failures; i++) {
    random_view r;
    view_random(&r);
    check_predicates(&r);
    int count = tt_view_numel(&r.view) ? check_steps(&r) : 0;
    if (count < 0) gathers++;
    else steps[count]++;
    if (tt_test_failures) view_random_print(&r, i);
  }
  printf("%d views: %d gathers; others by number of steps:", cases, gathers);
  for (int i = 0; i < TT_VIEW_MAX_STEPS; i++)
    if (steps[i]) printf(" %d:%d", i, steps[i]);
  printf("\n");
}

/* ---- the steps of common views ------------------------------------------------------------------------------ */

#define DIMS(...) (int64_t[]){__VA_ARGS__}
#define COUNT(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define CHECK_STEPS(array, offset, sizes, strides, expected)                                                        \
  check_named(TT_F32, COUNT array, DIMS array, &(tt_view){TT_F32, COUNT sizes, DIMS sizes, DIMS strides, offset}, \
              expected, __LINE__)

static void check_named(tt_dtype dtype, int rank, const int64_t *dims, const tt_view *v, const char *expected,
                        int line) {
  static const char *const names[] = {"", "bitcast", "reshape", "slice", "pad", "transpose", "broadcast", "gather"};
  static tt_view_plan plan;
  tt_strbuf s = TT_STRBUF_INIT;
  tt_strbuf_add(&s, "");
  TT_CHECK_OK(tt_view_decompose(v, dtype, rank, dims, &plan));
  for (int i = 1; i < plan.count; i++) tt_strbuf_printf(&s, "%s%s", i > 1 ? " " : "", names[plan.steps[i].kind]);
  const char *got = s.data ? s.data : "";
  if (strcmp(got, expected)) TT_CHECK_FAILED("line %d: expected \"%s\", got \"%s\"", line, expected, got);
  tt_strbuf_free(&s);
}

TT_TEST(few_steps) {
  CHECK_STEPS((8, 16), 0, (8, 16), (16, 1), "");
  CHECK_STEPS((8, 16), 0, (128), (1), "reshape");
  CHECK_STEPS((8, 16), 0, (16, 8), (1, 16), "transpose");
  CHECK_STEPS((8, 16), 18, (7, 3), (16, 1), "slice");
  CHECK_STEPS((8, 16), 0, (8, 8), (16, 2), "slice");
  CHECK_STEPS((8, 16), 48, (16), (1), "slice reshape");
  CHECK_STEPS((8, 16), 3, (8), (16), "slice reshape");
  CHECK_STEPS((8, 16), 18, (3, 7), (1, 16), "slice transpose");
  CHECK_STEPS((8, 16), 16, (2, 2, 16), (32, 16, 1), "slice reshape");
  CHECK_STEPS((16), 0, (8, 16), (0, 1), "broadcast");
  CHECK_STEPS((8, 1), 0, (8, 16), (1, 0), "broadcast");
  CHECK_STEPS((8), 0, (8, 16), (1, 0), "broadcast");
  CHECK_STEPS((1, 8), 0, (8, 16), (1, 0), "reshape broadcast");
  CHECK_STEPS((4, 1, 8), 0, (8, 1, 4), (1, 8, 8), "transpose");
  CHECK_STEPS((1, 4, 8), 0, (8, 1, 4), (1, 8, 8), "transpose");
  CHECK_STEPS((4, 8), 0, (8, 1, 4), (1, 1, 8), "reshape transpose");
  CHECK_STEPS((4, 8), 0, (8, 5, 4), (1, 0, 8), "transpose broadcast");
  CHECK_STEPS((8, 8), 0, (8), (9), "reshape slice");              /* diagonal */
  CHECK_STEPS((3, 8, 8), 1, (3, 7), (64, 9), "reshape slice");    /* of a batch */
  CHECK_STEPS((2, 5, 24), 8, (2, 2, 5, 4), (120, 4, 24, 1), "slice reshape transpose"); /* heads of q, k, v */
  CHECK_STEPS((1000), 14, (4, 4), (16, 1), "slice reshape slice");
  CHECK_STEPS((64), 14, (3, 4), (16, 1), "slice reshape slice");
  CHECK_STEPS((62), 14, (3, 6), (20, 1), "slice reshape slice");
  CHECK_STEPS((59), 14, (3, 5), (20, 1), "slice pad reshape slice");
  CHECK_STEPS((48), 0, (2, 2, 2), (24, 16, 2), "reshape slice");  /* strides that do not divide each other */
  CHECK_STEPS((10), 0, (8, 3), (1, 1), "gather");                 /* unfold with overlap */
}

TT_TEST(dtype_views) {
  int64_t dims[] = {4, 6}, pairs[] = {4, 6, 2}, bytes[] = {4, 24};
  int64_t pair_strides[] = {12, 2, 1}, byte_strides[] = {24, 1};
  int64_t halves[] = {4, 3}, one[] = {1}, odd[] = {7};
  check_named(TT_F32, 2, dims, &(tt_view){TT_I32, 2, dims, (int64_t[]){6, 1}, 0}, "bitcast", __LINE__);
  check_named(TT_C64, 2, dims, &(tt_view){TT_F32, 3, pairs, pair_strides, 0}, "bitcast", __LINE__);
  check_named(TT_F32, 3, pairs, &(tt_view){TT_C64, 2, dims, (int64_t[]){6, 1}, 0}, "bitcast", __LINE__);
  check_named(TT_F32, 2, dims, &(tt_view){TT_U8, 2, bytes, byte_strides, 0}, "bitcast reshape", __LINE__);
  check_named(TT_U8, 2, bytes, &(tt_view){TT_F32, 2, dims, (int64_t[]){6, 1}, 0}, "reshape bitcast", __LINE__);
  check_named(TT_F32, 2, dims, &(tt_view){TT_F64, 2, halves, (int64_t[]){3, 1}, 0}, "reshape bitcast", __LINE__);
  check_named(TT_U8, 1, odd, &(tt_view){TT_I16, 1, (int64_t[]){3}, one, 0}, "slice reshape bitcast", __LINE__);
  check_named(TT_U8, 1, odd, &(tt_view){TT_BOOL, 1, odd, one, 0}, "bitcast", __LINE__);
}

TT_TEST(bounds) {
  static tt_view_plan plan;
  int64_t dims[] = {8, 16}, sizes[] = {8, 16}, strides[] = {16, 1}, far[] = {INT64_MAX / 2, 1};
  tt_status s = tt_view_decompose(&(tt_view){TT_F32, 2, sizes, strides, 1}, TT_F32, 2, dims, &plan);
  TT_CHECK_STR_EQ(tt_status_message(s), "setStorage: sizes [8, 16], strides [16, 1], storage offset 1, and itemsize 4 "
                                        "requiring a storage size of 516 are out of bounds for storage of size 512");
  tt_status_free(s);
  s = tt_view_decompose(&(tt_view){TT_F32, 2, sizes, far, 0}, TT_F32, 2, dims, &plan);
  TT_CHECK(s != TT_OK);
  tt_status_free(s);
}

TT_TEST(high_rank) {
  int64_t dims[HLO_MAX_RANK], strides[HLO_MAX_RANK], reversed[HLO_MAX_RANK], one[] = {1};
  for (int i = 0; i < HLO_MAX_RANK; i++) dims[i] = i % 8 ? 1 : 2;
  tt_view_contiguous_strides(HLO_MAX_RANK, dims, strides);
  for (int i = 0; i < HLO_MAX_RANK; i++) reversed[i] = strides[HLO_MAX_RANK - 1 - i];
  int64_t sizes[HLO_MAX_RANK];
  for (int i = 0; i < HLO_MAX_RANK; i++) sizes[i] = dims[HLO_MAX_RANK - 1 - i];
  check_named(TT_F32, HLO_MAX_RANK, dims, &(tt_view){TT_F32, HLO_MAX_RANK, sizes, reversed, 0}, "transpose", __LINE__);
  check_named(TT_F32, HLO_MAX_RANK, dims, &(tt_view){TT_U8, 1, (int64_t[]){1024}, one, 0}, "reshape bitcast reshape",
              __LINE__);
  check_named(TT_F32, HLO_MAX_RANK, dims, &(tt_view){TT_F64, 1, (int64_t[]){128}, one, 0}, "reshape bitcast", __LINE__);
}
