/* Hash of an array of 64-bit words into 128 bits, for keys of caches (not for adversaries).
 *
 * Two lanes take each pair of words through a 64x64->128 multiplication; a lane's old state is also added after the
 * product, so that a factor of zero does not forget what came before. */
#ifndef TT_BASE_HASH_H
#define TT_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  uint64_t lo, hi;
} tt_hash128;

__extension__ typedef unsigned __int128 tt_u128;

static inline uint64_t tt_hash_mix(uint64_t a, uint64_t b) {
  tt_u128 product = (tt_u128)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t tt_hash_rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static inline tt_hash128 tt_hash_words(const uint64_t *w, size_t n) {
  const uint64_t k0 = 0x9E3779B97F4A7C15u, k1 = 0xD1B54A32D192ED03u, k2 = 0x8CB92BA72F3D8DD7u, k3 = 0xAAAAAAAA55555555u;
  uint64_t a = k0 ^ n, b = k1 + n;
  for (size_t i = 0; i < n; i += 2) {
    uint64_t x = w[i], y = i + 1 < n ? w[i + 1] : k3;
    uint64_t next_a = tt_hash_mix(x ^ a, y ^ k2) + tt_hash_rotate(a, 23);
    uint64_t next_b = tt_hash_mix(y ^ b, x ^ k1) + tt_hash_rotate(b, 41);
    a = next_a;
    b = next_b;
  }
  tt_hash128 h = {tt_hash_mix(a ^ k1, b ^ k2), tt_hash_mix(b ^ k0, tt_hash_rotate(a, 32) ^ k3)};
  h.lo ^= a;
  h.hi ^= b;
  h.lo = tt_hash_mix(h.lo ^ k2, k0 | 1) ^ h.hi >> 29;
  h.hi = tt_hash_mix(h.hi ^ k0, k1 | 1) ^ h.lo >> 31;
  return h;
}

static inline bool tt_hash_equal(tt_hash128 a, tt_hash128 b) { return a.lo == b.lo && a.hi == b.hi; }

#endif
