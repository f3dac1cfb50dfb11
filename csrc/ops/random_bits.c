/* Random bits and the simplest distributions. See random_bits.h. */
#include "ops/random_bits.h"

#include <math.h>

#include "ops/pieces.h"

static hlo_value shift_right(tt_lower *l, hlo_value bits, int by) {
  return hlo_shr_logic(l->b, bits, hlo_like_i64(l->b, bits, by));
}

/* x ^= x >> by, then x *= factor */
static hlo_value mix(tt_lower *l, hlo_value x, int by, uint64_t factor) {
  x = hlo_xor(l->b, x, shift_right(l, x, by));
  return hlo_mul(l->b, x, hlo_like_i64(l->b, x, (int64_t)factor));
}

/* A 64-bit bijection whose every output bit depends on every input bit: the finalizer of SplitMix64. */
static hlo_value scramble(tt_lower *l, hlo_value x) {
  x = mix(l, mix(l, x, 30, 0xBF58476D1CE4E5B9), 27, 0x94D049BB133111EB);
  return hlo_xor(l->b, x, shift_right(l, x, 31));
}

/* Element i is scramble(scramble(first + i * odd) ^ second): first and second are the state's words, scrambled, so that
 * streams which meet at one place still differ. It fuses into whatever uses it, where the plugin's own generator writes
 * blocks of four words and joins them. */
static hlo_value counted_bits(tt_lower *l, hlo_value state, int rank, const int64_t *dims) {
  hlo_value word[3];
  for (int i = 0; i < 3; i++) word[i] = hlo_reshape(l->b, tt_slice_step(l, state, 0, i, 1, 1), 0, NULL);
  hlo_value first = scramble(l, word[0]);
  for (int i = 1; i < 3; i++) first = scramble(l, hlo_xor(l->b, first, word[i]));
  hlo_value second = scramble(l, hlo_not(l->b, first));
  int64_t numel = tt_product(rank, dims);
  hlo_value i = hlo_reshape(l->b, hlo_iota(l->b, TT_U64, 1, &numel, 0), rank, dims);
  hlo_value x = hlo_add(l->b, hlo_mul(l->b, i, hlo_like_i64(l->b, i, (int64_t)0x9E3779B97F4A7C15)), first);
  return scramble(l, hlo_xor(l->b, scramble(l, x), second));
}

hlo_value tt_random_bits(tt_lower *l, hlo_value state, tt_dtype dtype, int rank, const int64_t *dims) {
  if (l->is_cpu) {
    hlo_value bits = counted_bits(l, state, rank, dims);
    return dtype == TT_U64 ? bits : hlo_convert(l->b, shift_right(l, bits, 32), dtype);
  }
  hlo_value out[2] = {HLO_NONE, HLO_NONE};
  hlo_rng_bits(l->b, state, dtype, rank, dims, out);
  return out[1];
}

/* Whole numbers in [0, 2^count) as floats of the working dtype. They pass through a signed type: the CPU plugins
 * convert unsigned numbers slowly. */
static hlo_value random_whole(tt_lower *l, hlo_value state, tt_dtype work, int count, int rank, const int64_t *dims) {
  bool wide = work == TT_F64;
  hlo_value bits = shift_right(l, tt_random_bits(l, state, wide ? TT_U64 : TT_U32, rank, dims), (wide ? 64 : 32) - count);
  return hlo_convert(l->b, hlo_convert(l->b, bits, wide ? TT_I64 : TT_I32), work);
}

int tt_random_mantissa_bits(tt_dtype dtype) {
  switch (dtype) {
    case TT_F64: case TT_C128: return 53;
    case TT_F16: return 11;
    case TT_BF16: return 8;
    default: return 24;
  }
}

hlo_value tt_random_uniform(tt_lower *l, hlo_value state, tt_dtype dtype, int rank, const int64_t *dims) {
  int count = tt_random_mantissa_bits(dtype);
  tt_dtype work = tt_random_work_dtype(dtype);
  return hlo_mul(l->b, random_whole(l, state, work, count, rank, dims), hlo_scalar_f64(l->b, work, ldexp(1, -count)));
}

hlo_value tt_random_open(tt_lower *l, hlo_value state, tt_dtype work, int rank, const int64_t *dims) {
  int count = work == TT_F64 ? 52 : 23;
  hlo_value n = random_whole(l, state, work, count, rank, dims), half = hlo_scalar_f64(l->b, work, 0.5);
  return hlo_mul(l->b, hlo_add(l->b, n, half), hlo_scalar_f64(l->b, work, ldexp(1, -count)));
}

/* A standard normal number: sqrt(2) * erf_inv of the odd multiples of 2^-24 or 2^-53 in (-1, 1). */
hlo_value tt_random_normal(tt_lower *l, hlo_value state, tt_dtype work, int rank, const int64_t *dims) {
  int count = work == TT_F64 ? 53 : 24;
  double scale = ldexp(1, -count);
  hlo_value n = random_whole(l, state, work, count - 1, rank, dims);
  hlo_value odd = hlo_add(l->b, hlo_mul(l->b, n, hlo_scalar_f64(l->b, work, 4)),
                          hlo_scalar_f64(l->b, work, 2 - ldexp(1, count)));
  odd = hlo_mul(l->b, odd, hlo_scalar_f64(l->b, work, scale));
  return hlo_mul(l->b, hlo_erf_inv(l->b, odd), hlo_scalar_f64(l->b, work, 1.4142135623730951));
}
