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

/* From the least byte to the greatest, between two arrays; bytes that are the same everywhere are left out. Returns the
 * array that the result is in. */
static PAIR *NAME(sort_bytes)(PAIR *x, PAIR *other, int64_t n, int bytes) {
  int64_t counts[8][256];
  memset(counts, 0, (size_t)bytes * sizeof *counts);
  for (int64_t i = 0; i < n; i++) {
    for (int b = 0; b < bytes; b++) counts[b][x[i].key >> 8 * b & 255]++;
  }
  for (int b = 0; b < bytes; b++) {
    int64_t *place = counts[b], sum = 0;
    if (place[x[0].key >> 8 * b & 255] == n) continue;
    for (int d = 0; d < 256; d++) {
      int64_t here = place[d];
      place[d] = sum;
      sum += here;
    }
    for (int64_t i = 0; i < n; i++) other[place[x[i].key >> 8 * b & 255]++] = x[i];
    PAIR *sorted = other;
    other = x;
    x = sorted;
  }
  return x;
}

static PAIR *NAME(sort_pairs)(PAIR *x, PAIR *other, int64_t n, int bytes) {
  enum { FEW = 40 };
  if (n > FEW) return NAME(sort_bytes)(x, other, n, bytes);
  NAME(sort_few)(x, n);
  return x;
}

static void NAME(put_first)(const lanes *s, int64_t lane, int64_t out_lane, const PAIR *sorted) {
  for (int64_t i = 0; i < s->keep; i++) put(s, lane, out_lane, i, (int64_t)sorted[i].at);
}

static void NAME(sort_lane)(const lanes *s, int64_t lane, int64_t out_lane) {
  PAIR *pairs = s->pairs;
  uint64_t keys[BLOCK];
  for (int64_t first = 0; first < s->n; first += BLOCK) {
    int64_t n = read_keys(s, lane, first, keys);
    for (int64_t i = 0; i < n; i++) pairs[first + i] = (PAIR){(WORD)keys[i], (WORD)(first + i)};
  }
  NAME(put_first)(s, lane, out_lane, NAME(sort_pairs)(pairs, pairs + s->room, s->n, s->type.bytes));
}

/* Pairs that come before the worst of the best so far gather until the room is full, then the best are chosen anew.
 * Equal keys come in the order of their positions, so a later one never displaces an earlier one. */
static void NAME(select_lane)(const lanes *s, int64_t lane, int64_t out_lane) {
  PAIR *best = s->pairs, *other = best + s->room;
  uint64_t keys[BLOCK], limit = 0;
  bool limited = false;
  int64_t held = 0;
  for (int64_t first = 0; first < s->n; first += BLOCK) {
    int64_t n = read_keys(s, lane, first, keys);
    for (int64_t i = 0; i < n; i++) {
      if (limited && keys[i] >= limit) continue;
      best[held++] = (PAIR){(WORD)keys[i], (WORD)(first + i)};
      if (held < s->room) continue;
      PAIR *sorted = NAME(sort_pairs)(best, other, held, s->type.bytes);
      if (sorted != best) other = best;
      best = sorted;
      held = s->keep;
      limit = best[held - 1].key;
      limited = true;
    }
  }
  NAME(put_first)(s, lane, out_lane, NAME(sort_pairs)(best, other, held, s->type.bytes));
}

#undef NAME
#undef PAIR
#undef WORD
#undef JOIN
#undef JOIN2
