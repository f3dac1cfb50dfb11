/* Part of sort.c, included for BITS = 32 and 64 behind sort_pairs.h: selecting pairs of a key and a position. Which of equal
 * elements are chosen, and in what order they come, is what CPU PyTorch chooses: it selects by the C++ library's partial_sort,
 * nth_element and sort (topk) or by a quickselect (kthvalue), so the same comparisons are made here in the same order. No
 * include guard. */
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define WORD JOIN(JOIN(uint, BITS), _t)
#define PAIR JOIN(pair, BITS)
#define NAME(name) JOIN(JOIN(name, _), BITS)

static void NAME(swap)(PAIR *x, int64_t i, int64_t j) {
  PAIR moving = x[i];
  x[i] = x[j];
  x[j] = moving;
}

/* ---- heaps: the worst is at the top ----------------------------------------------------------------------------- */

/* The hole at `hole` sinks to a leaf, then `value` rises from there. */
static void NAME(heap_adjust)(PAIR *x, int64_t hole, int64_t n, PAIR value) {
  const int64_t top = hole;
  int64_t child = hole;
  while (child < (n - 1) / 2) {
    child = 2 * (child + 1);
    if (x[child].key < x[child - 1].key) child--;
    x[hole] = x[child];
    hole = child;
  }
  if (n % 2 == 0 && child == (n - 2) / 2) {
    child = 2 * child + 1;
    x[hole] = x[child];
    hole = child;
  }
  for (int64_t parent = (hole - 1) / 2; hole > top && x[parent].key < value.key; parent = (hole - 1) / 2) {
    x[hole] = x[parent];
    hole = parent;
  }
  x[hole] = value;
}

static void NAME(heap_make)(PAIR *x, int64_t n) {
  for (int64_t parent = (n - 2) / 2; n > 1 && parent >= 0; parent--) NAME(heap_adjust)(x, parent, n, x[parent]);
}

static void NAME(heap_sort)(PAIR *x, int64_t n) {
  while (n-- > 1) {
    PAIR value = x[n];
    x[n] = x[0];
    NAME(heap_adjust)(x, 0, n, value);
  }
}

/* The first `keep` of n become the best ones, as a heap. */
static void NAME(heap_select)(PAIR *x, int64_t keep, int64_t n) {
  NAME(heap_make)(x, keep);
  for (int64_t i = keep; i < n; i++) {
    if (x[i].key >= x[0].key) continue;
    PAIR value = x[i];
    x[i] = x[0];
    NAME(heap_adjust)(x, 0, keep, value);
  }
}

/* ---- partitions ------------------------------------------------------------------------------------------------- */

static int64_t NAME(median_of_three)(const PAIR *x, int64_t a, int64_t b, int64_t c) {
  if (x[a].key < x[b].key) return x[b].key < x[c].key ? b : x[a].key < x[c].key ? c : a;
  return x[a].key < x[c].key ? a : x[b].key < x[c].key ? c : b;
}

/* Parts [first, last) around the median of three of it, which comes first; returns where the second part begins. */
static int64_t NAME(partition)(PAIR *x, int64_t first, int64_t last) {
  NAME(swap)(x, first, NAME(median_of_three)(x, first + 1, first + (last - first) / 2, last - 1));
  const WORD pivot = x[first].key;
  int64_t i = first + 1, j = last;
  for (;;) {
    while (x[i].key < pivot) i++;
    j--;
    while (pivot < x[j].key) j--;
    if (i >= j) return i;
    NAME(swap)(x, i++, j);
  }
}

static int NAME(depth_of)(int64_t n) { return n > 0 ? 2 * (63 - __builtin_clzll((unsigned long long)n)) : 0; }

/* Puts what belongs at `at` of the sorted n there, what is less before it. */
static void NAME(select_nth)(PAIR *x, int64_t at, int64_t n) {
  int64_t first = 0, last = n;
  for (int depth = NAME(depth_of)(n); last - first > 3; depth--) {
    if (depth == 0) {
      NAME(heap_select)(x + first, at + 1 - first, last - first);
      NAME(swap)(x, first, at);
      return;
    }
    int64_t cut = NAME(partition)(x, first, last);
    if (cut <= at) first = cut;
    else last = cut;
  }
  NAME(sort_few)(x + first, last - first);
}

/* Sorts all but short runs, each of which lies where it belongs. */
static void NAME(sort_runs)(PAIR *x, int64_t first, int64_t last, int depth) {
  enum { RUN = 16 };
  for (; last - first > RUN; depth--) {
    if (depth == 0) {
      NAME(heap_make)(x + first, last - first);
      NAME(heap_sort)(x + first, last - first);
      return;
    }
    int64_t cut = NAME(partition)(x, first, last);
    NAME(sort_runs)(x, cut, last, depth - 1);
    last = cut;
  }
}

/* ---- lanes ------------------------------------------------------------------------------------------------------ */

/* Few of many: what is no better than the worst of the best so far is passed over in blocks. */
static void NAME(select_few)(const lanes *s, int64_t lane) {
  PAIR *best = s->pairs;
  uint64_t keys[BLOCK];
  NAME(read_pairs)(s, lane, s->keep);
  NAME(heap_make)(best, s->keep);
  for (int64_t first = s->keep; first < s->n; first += BLOCK) {
    int64_t n = read_keys(s, lane, first, keys);
    for (int64_t i = 0; (i = find_below(keys, i, n, best[0].key)) < n; i++)
      NAME(heap_adjust)(best, 0, s->keep, (PAIR){(WORD)keys[i], (WORD)(first + i)});
  }
  NAME(heap_sort)(best, s->keep);
}

static void NAME(select_lane)(const lanes *s, int64_t lane) {
  PAIR *x = s->pairs;
  const int64_t last = s->keep - 1;
  if (is_few(s->keep, s->n)) {
    NAME(select_few)(s, lane);
  } else {
    NAME(read_pairs)(s, lane, s->n);
    NAME(select_nth)(x, last, s->n);
    if (s->sorted) {
      NAME(sort_runs)(x, 0, last, NAME(depth_of)(last));
      NAME(sort_few)(x, last);
    }
  }
  NAME(put_first)(s, lane, x);
}

/* The element that belongs at s->keep - 1, alone. */
static void NAME(select_one)(const lanes *s, int64_t lane) {
  PAIR *x = s->pairs;
  const int64_t at = s->keep - 1;
  int64_t low = 0, high = s->n - 1;
  NAME(read_pairs)(s, lane, s->n);
  while (high > low + 1) {
    NAME(swap)(x, low + (high - low) / 2, low + 1);
    if (x[low + 1].key > x[high].key) NAME(swap)(x, low + 1, high);
    if (x[low].key > x[high].key) NAME(swap)(x, low, high);
    if (x[low + 1].key > x[low].key) NAME(swap)(x, low + 1, low);
    int64_t i = low + 1, j = high;
    const WORD pivot = x[low].key;
    for (;;) {
      do i++;
      while (pivot > x[i].key);
      do j--;
      while (x[j].key > pivot);
      if (j < i) break;
      NAME(swap)(x, i, j);
    }
    NAME(swap)(x, low, j);
    if (j <= at) low = i;
    if (j >= at) high = j - 1;
  }
  if (high == low + 1 && x[low].key > x[high].key) NAME(swap)(x, low, high);
  put(s, lane, 0, x[at].key, (int64_t)x[at].at);
}

#undef NAME
#undef PAIR
#undef WORD
#undef JOIN
#undef JOIN2
