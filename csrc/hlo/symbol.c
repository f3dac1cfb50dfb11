/* Sizes that are known only at run time. */
#include <string.h>

#include "hlo/hlo_internal.h"

/* Primes of which no multiple is near a power of two, which lowerings use as plain numbers, or of ten. The same goes for
 * their sums and differences, and no small multiples of two of all these are near each other. Small enough for two of them
 * and a few hundred in one product. */
static const int64_t symbols[HLO_MAX_SYMBOLS] = {63946529, 68295811, 75742529,  79142641,
                                                  86060911, 93247417, 103802261, 111653761};

enum { SMALLEST = 1 << 25, MOST_PLUS = 4096, MOST_TIMES_WITH_PLUS = 10000, MOST_DIVISOR = 64 };
#define LARGEST ((int64_t)1 << 62)

int64_t hlo_symbol(int index) { return symbols[index]; }

void hlo_builder_set_symbols(hlo_builder *b, int count, const int64_t *bounds, hlo_size_fn size, void *context) {
  b->symbol_count = count;
  for (int i = 0; i < count; i++) b->symbol_bounds[i] = bounds[i];
  b->size_fn = size;
  b->size_context = context;
}

/* ---- what a number stands for ----------------------------------------------------------------------------------- */

/* (symbol + sign * added) * other. added -1: symbol alone; other -1: no factor; symbol -1: none of all this. */
typedef struct unit {
  int symbol, added, other, sign;
} unit;

/* number = times * unit + plus */
typedef struct decoded {
  unit of;
  int64_t times, plus;
} decoded;

static int64_t absolute(int64_t x) { return x < 0 ? -x : x; }

/* All units of `count` symbols, the simplest first. False after the last one. */
static bool unit_next(unit *u, int count) {
  if (++u->symbol < count) return true;
  u->symbol = 0;
  if (++u->other < count) return true; /* once for each order of the two */
  u->other = -1;
  if (u->sign > 0 && u->added >= 0) {
    u->sign = -1;
    return true;
  }
  u->sign = 1;
  return ++u->added < count;
}

static int64_t unit_value(const unit *u, const int64_t *sizes) {
  int64_t sum = sizes[u->symbol] + (u->added < 0 ? 0 : u->sign * sizes[u->added]);
  return u->other < 0 ? sum : sum * sizes[u->other];
}

static bool unit_is_new(const unit *u) { return u->added < 0 ? u->other <= u->symbol : u->added > u->symbol; }

static bool is_near(int64_t number, int64_t value, int64_t *out_times, int64_t *out_plus) {
  int64_t half = absolute(value) / 2;
  *out_times = (number + (number > 0 ? half : -half)) / value;
  *out_plus = number - *out_times * value;
  return *out_times && absolute(*out_times) <= MOST_TIMES_WITH_PLUS && absolute(*out_plus) <= MOST_PLUS;
}

/* Multiples of one unit; or near those, if there is but one such. */
static bool decode_symbolic(int count, int64_t number, decoded *out) {
  int found = 0;
  decoded d = {.of = {-1, -1, -1, 1}};
  while (unit_next(&d.of, count)) {
    int64_t value = unit_value(&d.of, symbols);
    if (!unit_is_new(&d.of)) continue;
    if (number % value == 0 && absolute(number / value) < SMALLEST) {
      *out = d;
      out->times = number / value;
      out->plus = 0;
      return true;
    }
    if (is_near(number, value, &d.times, &d.plus) && !found++) *out = d;
  }
  return found == 1;
}

/* A part of a size, as a lowering that divides would make it. */
static bool is_quotient(int count, int64_t number) {
  int64_t times, plus;
  for (int i = 0; i < count; i++)
    for (int64_t by = 2; by <= MOST_DIVISOR; by++)
      if (is_near(number * by, symbols[i], &times, &plus) && absolute(plus) <= by) return true;
  return false;
}

/* Masks, bits of numbers, limits, and what people use for infinity. */
static bool is_plain(int64_t number) {
  int64_t size = absolute(number);
  bool is_round = size % (1 << 20) == 0 || size % 1000000 == 0;
  return !(size & (size - 1)) || !(size & (size + 1)) || is_round || size > LARGEST / MOST_DIVISOR;
}

/* False if there may be a symbol in the number, but in a way that has no form. Lowerings have constants of 32 bits. */
static bool decode(int count, int64_t number, decoded *out) {
  int64_t size = absolute(number);
  *out = (decoded){{-1, -1, -1, 1}, 0, number};
  if (!count || size < SMALLEST / MOST_DIVISOR || number <= -LARGEST || number >= LARGEST) return true;
  if (decode_symbolic(count, number, out)) return true;
  *out = (decoded){{-1, -1, -1, 1}, 0, number};
  return is_plain(number) || (size <= UINT32_MAX && !is_quotient(count, number));
}

bool hlo_number_is_symbolic(const hlo_builder *b, int64_t number) {
  decoded d;
  return b->symbol_count && (!decode(b->symbol_count, number, &d) || d.of.symbol >= 0);
}

bool hlo_dim_bound(const hlo_builder *b, int64_t dim, int64_t *out_bound) {
  decoded d;
  *out_bound = dim;
  if (!hlo_number_is_symbolic(b, dim)) return !b->symbol_count || dim < SMALLEST || is_plain(dim);
  if (!decode(b->symbol_count, dim, &d) || d.of.symbol < 0) return false;
  const int64_t *bounds = b->symbol_bounds;
  int64_t most = bounds[d.of.symbol];
  if (d.of.added >= 0 && d.of.sign > 0) most += bounds[d.of.added];
  if (d.of.sign < 0 && d.times < 0) { /* the other one is larger */
    most = bounds[d.of.added];
    d.times = -d.times;
  }
  int64_t other = d.of.other < 0 ? 1 : bounds[d.of.other];
  if (!tt_mul_fits(d.times, most, out_bound) || !tt_mul_fits(*out_bound, other, out_bound)) return false;
  *out_bound += d.plus;
  if (*out_bound < 0) *out_bound = 0; /* as many elements as the largest size has */
  return true;
}

bool hlo_dims_have_form(const hlo_builder *b, int rank, const int64_t *dims) {
  int64_t known = 1;
  bool is_dynamic = false;
  if (!b->symbol_count) return true;
  for (int i = rank - 1; i >= 0; i--) {
    if (hlo_number_is_symbolic(b, dims[i])) is_dynamic = true;
    else if (hlo_number_is_symbolic(b, known *= dims[i])) return false;
  }
  return !is_dynamic || known < SMALLEST;
}

int64_t hlo_symbols_value(int64_t number, int count, const int64_t *sizes) {
  decoded d;
  if (!decode(count, number, &d) || d.of.symbol < 0) return number;
  return d.times * unit_value(&d.of, sizes) + d.plus;
}

const int64_t *hlo_bounds_of(hlo_builder *b, int count, const int64_t *numbers) {
  if (!b->symbol_count) return numbers;
  int64_t *bounds = tt_arena_alloc(b->arena, sizeof *bounds * (size_t)(count + 1));
  for (int i = 0; i < count; i++)
    if (!hlo_dim_bound(b, numbers[i], &bounds[i])) hlo_fail_symbolic(b, numbers[i]);
  return bounds;
}

hlo_value hlo_fail_symbolic(hlo_builder *b, int64_t number) {
  return hlo_fail(b, TT_NOT_IMPLEMENTED, "a number (%lld) depends on a size known only at run time in a way that has no form",
                  (long long)number);
}

hlo_value hlo_symbolic_number(hlo_builder *b, tt_dtype dtype, int64_t number) {
  decoded d;
  if (hlo_failed(b)) return hlo_none(b);
  if (!decode(b->symbol_count, number, &d) || d.of.symbol < 0) return hlo_fail_symbolic(b, number);
  hlo_value size = b->size_fn(b, b->size_context, d.of.symbol);
  if (d.of.added >= 0) {
    hlo_value added = b->size_fn(b, b->size_context, d.of.added);
    size = d.of.sign > 0 ? hlo_add(b, size, added) : hlo_sub(b, size, added);
  }
  if (d.of.other >= 0) size = hlo_mul(b, size, b->size_fn(b, b->size_context, d.of.other));
  if (d.times != 1) size = hlo_mul(b, size, hlo_scalar_i64(b, TT_I64, d.times));
  if (d.plus) size = hlo_add(b, size, hlo_scalar_i64(b, TT_I64, d.plus));
  return hlo_convert(b, size, dtype);
}

hlo_value hlo_mask_beyond(hlo_builder *b, hlo_value x, uint64_t axes, hlo_value fill) {
  if (hlo_failed(b)) return hlo_none(b);
  hlo_value inside = HLO_NONE;
  for (int i = 0; i < x.type->rank; i++) {
    if (!((x.type->dynamic & axes) >> i & 1)) continue;
    hlo_value position = hlo_iota(b, TT_I32, x.type->rank, x.type->dims, i);
    hlo_value here = hlo_compare(b, HLO_LT, position, hlo_symbolic_number(b, TT_I32, x.type->dims[i]));
    inside = hlo_is_none(inside) ? here : hlo_and(b, inside, here);
  }
  return hlo_is_none(inside) ? x : hlo_select(b, inside, x, fill);
}

hlo_value hlo_with_dims(hlo_builder *b, hlo_value x, const int64_t *dims) {
  if (hlo_failed(b)) return hlo_none(b);
  const hlo_type *type = hlo_type_make(b, x.type->dtype, x.type->rank, dims);
  for (int i = 0; i < type->rank && !hlo_failed(b); i++)
    if (type->bounds[i] != x.type->bounds[i]) hlo_fail(b, TT_INTERNAL, "%s has not the room of %s", hlo_type_text(b, x.type), hlo_type_text(b, type));
  return hlo_failed(b) ? hlo_none(b) : (hlo_value){x.id, type};
}

/* ---- reshape ------------------------------------------------------------------------------------------------ */

/* Among the dimensions [from, to) at most one is symbolic, and only 1s come before it. */
static bool is_major(const hlo_type *t, int from, int to) {
  int found = 0;
  bool leads = true;
  for (int i = from; i < to; i++) {
    bool symbolic = t->dynamic >> i & 1;
    if (symbolic && (!leads || found++)) return false;
    leads = leads && t->dims[i] == 1;
  }
  return true;
}

bool hlo_reshape_keeps_order(const hlo_type *from, const hlo_type *to) {
  for (int i = 0, k = 0; i < from->rank || k < to->rank;) {
    int first_i = i, first_k = k;
    int64_t a = i < from->rank ? from->dims[i++] : 1, c = k < to->rank ? to->dims[k++] : 1;
    while (a != c) {
      if (a < c && i < from->rank) a *= from->dims[i++];
      else if (k < to->rank) c *= to->dims[k++];
      else return false;
    }
    if (!is_major(from, first_i, i) || !is_major(to, first_k, k)) return false;
  }
  return true;
}

/* Row-major order of dims [0, rank) as they are, or as they lie in memory. */
static void strides_of(int rank, const int64_t *dims, int64_t *out) {
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; stride *= dims[i--]) out[i] = stride;
}

static int64_t product(int rank, const int64_t *dims) {
  int64_t n = 1;
  for (int i = 0; i < rank; i++) n *= dims[i];
  return n;
}

/* For each row of `to`, which row of `from` in memory it is; what lies beyond the sizes is any row, or none. */
static hlo_value rows_between(hlo_builder *b, const hlo_type *from, int from_rank, const hlo_type *to, int to_rank) {
  int64_t strides[HLO_MAX_RANK], in_memory[HLO_MAX_RANK];
  strides_of(to_rank, to->dims, strides);
  strides_of(from_rank, from->bounds, in_memory);
  hlo_value place = hlo_full_i64(b, TT_I32, to_rank, to->bounds, 0), row = place;
  for (int i = 0; i < to_rank; i++) {
    hlo_value position = hlo_iota(b, TT_I32, to_rank, to->bounds, i);
    place = hlo_add(b, place, hlo_mul(b, position, hlo_scalar_i64(b, TT_I32, strides[i])));
  }
  for (int i = from_rank - 1; i >= 0; i--) {
    hlo_value size = hlo_scalar_i64(b, TT_I32, from->dims[i]), here = i ? hlo_rem(b, place, size) : place;
    row = hlo_add(b, row, hlo_mul(b, here, hlo_scalar_i64(b, TT_I32, in_memory[i])));
    if (i) place = hlo_div(b, place, size);
  }
  return row;
}

hlo_value hlo_reshape_by_rows(hlo_builder *b, hlo_value x, const hlo_type *to) {
  static const char name[] = "stablehlo.reshape";
  const hlo_type *from = x.type;
  int from_rank = from->rank, to_rank = to->rank, first = 0, second = 1;
  int64_t width = 1;
  while (from_rank && to_rank && from->dims[from_rank - 1] == to->dims[to_rank - 1] && !(from->dynamic >> (from_rank - 1) & 1)) {
    width *= from->dims[--from_rank];
    to_rank--;
  }
  int64_t from_rows = product(from_rank, from->bounds), to_rows = product(to_rank, to->bounds);
  if (from_rows > INT32_MAX || to_rows > INT32_MAX) return hlo_fail(b, TT_NOT_IMPLEMENTED, "%s: too many rows", name);
  const hlo_type *flat = hlo_type_make(b, from->dtype, 2, (int64_t[]){from_rows, width});
  hlo_value rows = hlo_emit(b, name, 1, &x, NULL, flat);
  hlo_value index = hlo_reshape(b, rows_between(b, from, from_rank, to, to_rank), 1, &to_rows);
  hlo_gather_spec spec = {.offset_dims_count = 1, .offset_dims = &second, .collapsed_count = 1, .collapsed_slice_dims = &first,
                          .start_index_map_count = 1, .start_index_map = &first, .index_vector_dim = 1,
                          .slice_sizes = (const int64_t[]){1, width}};
  hlo_value taken = hlo_gather(b, rows, index, &spec);
  return hlo_failed(b) ? hlo_none(b) : hlo_emit(b, name, 1, &taken, NULL, to);
}

/* ---- parts at places known only at run time ------------------------------------------------------------------- */

hlo_value hlo_slice_at(hlo_builder *b, hlo_value x, int dim, int64_t start, int64_t size) {
  hlo_value starts[HLO_MAX_RANK], room = x;
  int64_t dims[HLO_MAX_RANK], bound;
  int rank = x.type->rank;
  if (hlo_failed(b)) return hlo_none(b);
  if (!hlo_dim_bound(b, size, &bound)) return hlo_fail_symbolic(b, size);
  for (int i = 0; i < rank; i++) {
    starts[i] = hlo_scalar_i64(b, TT_I64, i == dim ? start : 0);
    dims[i] = i == dim ? bound : x.type->bounds[i];
  }
  /* The start is never clamped: behind the array there is room for the whole part. */
  int64_t high[HLO_MAX_RANK] = {0};
  high[dim] = bound;
  room = hlo_with_dims(b, x, x.type->bounds);
  room = hlo_pad(b, room, hlo_scalar_i64(b, x.type->dtype, 0), NULL, high, NULL);
  hlo_value part = hlo_dynamic_slice(b, room, starts, dims);
  if (hlo_failed(b)) return hlo_none(b);
  memcpy(dims, x.type->dims, sizeof *dims * (size_t)rank);
  dims[dim] = size;
  return hlo_with_dims(b, part, dims);
}

hlo_value hlo_concatenate_at(hlo_builder *b, int count, const hlo_value *values, int dim, const hlo_type *to) {
  const hlo_type *first = values[0].type;
  int64_t high[HLO_MAX_RANK] = {0}, before = first->dims[dim];
  high[dim] = to->bounds[dim] - first->bounds[dim];
  hlo_value all = hlo_pad(b, hlo_with_dims(b, values[0], first->bounds), hlo_scalar_i64(b, first->dtype, 0), NULL, high, NULL);
  for (int k = 1; k < count; before += values[k++].type->dims[dim]) { /* each one's rest is overwritten by the next */
    hlo_value starts[HLO_MAX_RANK];
    for (int i = 0; i < first->rank; i++) starts[i] = hlo_scalar_i64(b, TT_I64, i == dim ? before : 0);
    all = hlo_dynamic_update_slice(b, all, hlo_with_dims(b, values[k], values[k].type->bounds), starts);
  }
  return hlo_with_dims(b, all, to->dims);
}

/* i1 of x's room: where the update lies, along the dimensions where its size is another one than x's. None: everywhere. */
static hlo_value updated_part(hlo_builder *b, const hlo_type *x, const hlo_type *update, const hlo_value *starts) {
  hlo_value inside = HLO_NONE;
  for (int i = 0; i < x->rank; i++) {
    if (!(update->dynamic >> i & 1) || update->dims[i] == x->dims[i]) continue;
    hlo_value position = hlo_iota(b, starts[i].type->dtype, x->rank, x->bounds, i);
    hlo_value end = hlo_add(b, starts[i], hlo_scalar_i64(b, starts[i].type->dtype, update->dims[i]));
    hlo_value here = hlo_and(b, hlo_compare(b, HLO_GE, position, starts[i]), hlo_compare(b, HLO_LT, position, end));
    inside = hlo_is_none(inside) ? here : hlo_and(b, inside, here);
  }
  return inside;
}

hlo_value hlo_update_at(hlo_builder *b, hlo_value x, hlo_value update, const hlo_value *starts) {
  int64_t none[HLO_MAX_RANK] = {0};
  const int64_t *bounds = x.type->bounds, *more = update.type->bounds; /* room, so that no start is clamped */
  hlo_value old = hlo_with_dims(b, x, bounds), part = hlo_with_dims(b, update, more);
  hlo_value room = hlo_pad(b, old, hlo_scalar_i64(b, x.type->dtype, 0), NULL, more, NULL);
  hlo_value fresh = hlo_slice(b, hlo_dynamic_update_slice(b, room, part, starts), none, bounds, NULL);
  hlo_value inside = updated_part(b, x.type, update.type, starts);
  if (!hlo_is_none(inside)) fresh = hlo_select(b, inside, fresh, old);
  return hlo_with_dims(b, fresh, x.type->dims);
}

hlo_value hlo_place_at(hlo_builder *b, hlo_value x, hlo_value padding, const int64_t *low, const hlo_type *to) {
  hlo_value starts[HLO_MAX_RANK];
  for (int i = 0; i < to->rank; i++) {
    if (low[i] < 0) return hlo_fail(b, TT_NOT_IMPLEMENTED, "stablehlo.pad: removes a number of elements known only at run time");
    starts[i] = hlo_scalar_i64(b, TT_I64, low[i]);
  }
  return hlo_update_at(b, hlo_broadcast_to(b, padding, to->rank, to->dims), x, starts);
}

hlo_value hlo_reverse_at(hlo_builder *b, hlo_value x, int dim) {
  int64_t size = x.type->dims[dim], bound = x.type->bounds[dim];
  hlo_value turned = hlo_reverse(b, hlo_with_dims(b, x, x.type->bounds), 1, &dim);
  hlo_value part = hlo_slice_at(b, turned, dim, bound - size, bound); /* what lay beyond comes first */
  return hlo_failed(b) ? hlo_none(b) : hlo_with_dims(b, part, x.type->dims);
}
