/* Hash of an array of 64-bit words, or of bytes, into 128 bits: for keys and checksums of caches (not for adversaries).
 *
 * Two lanes take each pair of words through a 64x64->128 multiplication; a lane's old state is also added after the
 * product, so that a factor of zero does not forget what came before. */
#ifndef TT_BASE_HASH_H
#define TT_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
  uint64_t lo, hi;
} tt_hash128;

__extension__ typedef unsigned __int128 tt_u128;

static inline uint64_t tt_hash_mix(uint64_t a, uint64_t b) {
  tt_u128 product = (tt_u128)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t tt_hash_rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static const uint64_t tt_hash_k[4] = {0x9E3779B97F4A7C15u, 0xD1B54A32D192ED03u, 0x8CB92BA72F3D8DD7u, 0xAAAAAAAA55555555u};

typedef struct {
  uint64_t a, b;
} tt_hash_lanes;

/* `n` is the length in whatever unit the caller counts: lengths must not be taken for contents. */
static inline tt_hash_lanes tt_hash_begin(size_t n) { return (tt_hash_lanes){tt_hash_k[0] ^ n, tt_hash_k[1] + n}; }

static inline void tt_hash_add(tt_hash_lanes *s, uint64_t x, uint64_t y) {
  uint64_t a = tt_hash_mix(x ^ s->a, y ^ tt_hash_k[2]) + tt_hash_rotate(s->a, 23);
  s->b = tt_hash_mix(y ^ s->b, x ^ tt_hash_k[1]) + tt_hash_rotate(s->b, 41);
  s->a = a;
}

static inline tt_hash128 tt_hash_end(tt_hash_lanes s) {
  const uint64_t *k = tt_hash_k;
  tt_hash128 h = {tt_hash_mix(s.a ^ k[1], s.b ^ k[2]), tt_hash_mix(s.b ^ k[0], tt_hash_rotate(s.a, 32) ^ k[3])};
  h.lo ^= s.a;
  h.hi ^= s.b;
  h.lo = tt_hash_mix(h.lo ^ k[2], k[0] | 1) ^ h.hi >> 29;
  h.hi = tt_hash_mix(h.hi ^ k[0], k[1] | 1) ^ h.lo >> 31;
  return h;
}

static inline tt_hash128 tt_hash_words(const uint64_t *w, size_t n) {
  tt_hash_lanes s = tt_hash_begin(n);
  for (size_t i = 0; i < n; i += 2) tt_hash_add(&s, w[i], i + 1 < n ? w[i + 1] : tt_hash_k[3]);
  return tt_hash_end(s);
}

/* The same for bytes, the last of which are filled up with zeros to a pair of words. */
static inline tt_hash128 tt_hash_bytes(const void *data, size_t n) {
  const unsigned char *p = (const unsigned char *)data;
  tt_hash_lanes s = tt_hash_begin(n);
  uint64_t pair[2];
  for (; n >= sizeof pair; n -= sizeof pair, p += sizeof pair) {
    memcpy(pair, p, sizeof pair);
    tt_hash_add(&s, pair[0], pair[1]);
  }
  if (n) {
    pair[0] = pair[1] = 0;
    memcpy(pair, p, n);
    tt_hash_add(&s, pair[0], pair[1]);
  }
  return tt_hash_end(s);
}

static inline bool tt_hash_equal(tt_hash128 a, tt_hash128 b) { return a.lo == b.lo && a.hi == b.hi; }

#endif
