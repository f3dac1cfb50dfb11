/* Part of sort.c, included for BITS = 32 and 64: pairs of a key and a position. No include guard. */
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define WORD JOIN(JOIN(uint, BITS), _t)
#define PAIR JOIN(pair, BITS)
#define NAME(name) JOIN(JOIN(name, _), BITS)

typedef struct PAIR {
  WORD key, at;
} PAIR;

static void NAME(sort_few)(PAIR *x, int64_t n) {
  for (int64_t i = 1; i < n; i++) {
    PAIR moving = x[i];
    int64_t j = i;
    for (; j > 0 && x[j - 1].key > moving.key; j--) x[j] = x[j - 1];
    x[j] = moving;
  }
}

/* From the least byte to the greatest of the lowest `bits`, between two arrays; bytes that are the same everywhere are
 * left out. Returns the array that the result is in. */
static PAIR *NAME(sort_bytes)(PAIR *x, PAIR *other, int64_t n, int bits) {
  int64_t counts[8][256];
  int bytes = (bits + 7) / 8;
  memset(counts, 0, (size_t)bytes * sizeof *counts);
  for (int64_t i = 0; i < n; i++) {
    for (int b = 0; b < bytes; b++) counts[b][x[i].key >> 8 * b & 255]++;
  }
  for (int b = 0; b < bytes; b++) {
    if (counts[b][x[0].key >> 8 * b & 255] == n) continue;
    counts_to_places(counts[b]);
    for (int64_t i = 0; i < n; i++) other[counts[b][x[i].key >> 8 * b & 255]++] = x[i];
    PAIR *sorted = other;
    other = x;
    x = sorted;
  }
  return x;
}

static PAIR *NAME(sort_pairs)(PAIR *x, PAIR *other, int64_t n, int bits);

/* Splits by the highest eight bits that differ, so that what is left fits the cache, and sorts the parts. */
static PAIR *NAME(sort_parts)(PAIR *x, PAIR *other, int64_t n) {
  int64_t places[256] = {0}, start = 0;
  WORD differ = 0;
  for (int64_t i = 0; i < n; i++) differ |= x[i].key ^ x[0].key;
  if (!differ) return x;
  int high = 64 - __builtin_clzll(differ), shift = high > 8 ? high - 8 : 0;
  for (int64_t i = 0; i < n; i++) places[x[i].key >> shift & 255]++;
  counts_to_places(places);
  for (int64_t i = 0; i < n; i++) other[places[x[i].key >> shift & 255]++] = x[i];
  for (int d = 0; d < 256; start = places[d++]) {
    int64_t count = places[d] - start;
    const PAIR *sorted = NAME(sort_pairs)(other + start, x + start, count, shift);
    if (sorted != x + start && count) memcpy(x + start, sorted, (size_t)count * sizeof *x);
  }
  return x;
}

static PAIR *NAME(sort_pairs)(PAIR *x, PAIR *other, int64_t n, int bits) {
  enum { FEW = 40, MANY = 16384 };
  if (n > MANY && bits > 16) return NAME(sort_parts)(x, other, n);
  if (n > FEW) return NAME(sort_bytes)(x, other, n, bits);
  NAME(sort_few)(x, n);
  return x;
}

static void NAME(put_first)(const lanes *s, int64_t lane, const PAIR *sorted) {
  for (int64_t i = 0; i < s->keep; i++) put(s, lane, i, sorted[i].key, (int64_t)sorted[i].at);
}

/* The pairs of a lane's first n elements. */
static void NAME(read_pairs)(const lanes *s, int64_t lane, int64_t n) {
  PAIR *pairs = s->pairs;
  uint64_t keys[BLOCK];
  for (int64_t first = 0; first < n; first += BLOCK) {
    int64_t count = read_keys(s, lane, first, keys);
    for (int64_t i = 0; i < count && first + i < n; i++) pairs[first + i] = (PAIR){(WORD)keys[i], (WORD)(first + i)};
  }
}

static void NAME(sort_lane)(const lanes *s, int64_t lane) {
  PAIR *pairs = s->pairs;
  NAME(read_pairs)(s, lane, s->n);
  NAME(put_first)(s, lane, NAME(sort_pairs)(pairs, pairs + s->n, s->n, s->type.bits));
}

#undef NAME
#undef PAIR
#undef WORD
#undef JOIN
#undef JOIN2
