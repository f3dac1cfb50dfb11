/* For tests of DeferAndFuse. Included once, by a test program. */
#ifndef TT_EAGER_REGION_FIXTURE_H
#define TT_EAGER_REGION_FIXTURE_H

#include "eager/eager_fixture.h"

/* A DEVICE_TEST in DeferAndFuse. */
#define DEFER_TEST(name)                         \
  static void deferred_##name(tt_device *d);     \
  DEVICE_TEST(name) {                            \
    TT_CHECK_OK(tt_device_set_defer(d, true));   \
    deferred_##name(d);                          \
  }                                              \
  static void deferred_##name(tt_device *d)

MAYBE_UNUSED static tt_region_stats stats(tt_device *d) { return tt_device_region_stats(d); }
MAYBE_UNUSED static int ended(tt_device *d, tt_flush_reason reason) { return (int)stats(d).reasons[reason]; }
MAYBE_UNUSED static int64_t donated(tt_device *d) { return tt_device_cache_stats(d).donated; }
MAYBE_UNUSED static float element(const tensor *t, int64_t offset) {
  float x = 0;
  TT_CHECK_OK(tt_storage_read_element(t->storage, TT_F32, offset, &x));
  return x;
}

/* The storage's bytes, or the failure of reading them. */
MAYBE_UNUSED static tt_status read_all(const tensor *t, float *out) {
  tt_host_view view;
  TT_TRY(tt_storage_map(t->storage, t->dtype, &view));
  if (out) memcpy(out, view.data, (size_t)tt_storage_nbytes(t->storage));
  tt_storage_unmap(&view);
  return TT_OK;
}

#endif
