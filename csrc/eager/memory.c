/* Device memory as this process counts it: the limit, the statistics, and the list of the arrays that are alive. */
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "eager/internal.h"

/* ---- the list of arrays --------------------------------------------------------------------------------------- */

/* Smaller ones are counted, but not listed: an operator on them would pay for the lock, and they never fill a memory. */
enum { LISTED_BYTES = 16 << 10 };

void tt_memory_init(tt_device *d) {
  pthread_mutex_init(&d->arrays_lock, NULL);
  d->arrays.next = d->arrays.previous = &d->arrays;
}

void tt_memory_list(tt_value *v) {
  if (v->bytes < LISTED_BYTES) return;
  v->listed = true; /* its neighbours change the link from their threads, so that does not tell */
  tt_device *d = v->device;
  pthread_mutex_lock(&d->arrays_lock);
  v->link = (tt_value_link){.next = &d->arrays, .previous = d->arrays.previous};
  v->link.previous->next = v->link.next->previous = &v->link;
  pthread_mutex_unlock(&d->arrays_lock);
}

void tt_memory_unlist(tt_value *v) {
  if (!v->listed) return;
  v->listed = false;
  tt_device *d = v->device;
  pthread_mutex_lock(&d->arrays_lock);
  v->link.previous->next = v->link.next;
  v->link.next->previous = v->link.previous;
  v->link = (tt_value_link){0};
  pthread_mutex_unlock(&d->arrays_lock);
}

/* ---- who uses it ---------------------------------------------------------------------------------------------- */

static int by_type(const void *a, const void *b) {
  const tt_live_array *x = a, *y = b;
  if (x->dtype != y->dtype) return x->dtype < y->dtype ? -1 : 1;
  if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
  return x->rank ? memcmp(x->dims, y->dims, (size_t)x->rank * sizeof *x->dims) : 0;
}

static int by_total(const void *a, const void *b) {
  const tt_live_array *x = a, *y = b;
  int64_t left = x->count * x->bytes, right = y->count * y->bytes;
  return left != right ? left < right ? 1 : -1 : by_type(a, b);
}

static const tt_value *value_of(const tt_value_link *link) {
  return (const tt_value *)(const void *)((const char *)link - offsetof(tt_value, link));
}

static tt_live_arrays arrays_copy(tt_device *d) {
  size_t count = 0, dims = 0;
  pthread_mutex_lock(&d->arrays_lock);
  for (tt_value_link *at = d->arrays.next; at != &d->arrays; at = at->next, count++) dims += value_of(at)->type.rank;
  tt_live_arrays all = {(int)count, tt_malloc((count + 1) * sizeof *all.arrays), tt_malloc((dims + 1) * sizeof *all.dims)};
  tt_live_array *next = all.arrays;
  int64_t *free_dims = all.dims;
  for (tt_value_link *at = d->arrays.next; at != &d->arrays; at = at->next) {
    const tt_value *v = value_of(at);
    *next++ = (tt_live_array){1, v->bytes, (tt_dtype)v->type.dtype, v->type.rank, free_dims};
    memcpy(free_dims, v->type.dims, v->type.rank * sizeof *free_dims);
    free_dims += v->type.rank;
  }
  pthread_mutex_unlock(&d->arrays_lock);
  return all;
}

tt_live_arrays tt_device_live_arrays(tt_device *d) {
  tt_live_arrays all = arrays_copy(d);
  if (!all.count) return all;
  qsort(all.arrays, (size_t)all.count, sizeof *all.arrays, by_type);
  int last = 0;
  for (int i = 1; i < all.count; i++) {
    if (!by_type(&all.arrays[last], &all.arrays[i])) all.arrays[last].count++;
    else all.arrays[++last] = all.arrays[i];
  }
  all.count = last + 1;
  qsort(all.arrays, (size_t)all.count, sizeof *all.arrays, by_total);
  return all;
}

void tt_live_arrays_free(tt_live_arrays *all) {
  free(all->arrays);
  free(all->dims);
  *all = (tt_live_arrays){0};
}

static void print_row(tt_strbuf *out, int64_t bytes, int64_t count) {
  tt_strbuf_printf(out, "\n%12.2f MiB %8" PRId64 "  ", (double)bytes / 1048576, count);
}

char *tt_device_memory_table(tt_device *d, int most) {
  tt_strbuf text = TT_STRBUF_INIT, *out = &text;
  tt_live_arrays all = tt_device_live_arrays(d);
  tt_memory_stats stats = tt_device_memory(d);
  int64_t bytes = stats.live_bytes, count = stats.live_values;
  tt_strbuf_printf(out, "%16s %8s  %s", "in use", "arrays", "each of them");
  for (int i = 0; i < all.count && i < most; i++) {
    const tt_live_array *a = &all.arrays[i];
    print_row(out, a->count * a->bytes, a->count);
    tt_strbuf_printf(out, "%s [", tt_dtype_name(a->dtype));
    for (int k = 0; k < a->rank; k++) tt_strbuf_printf(out, "%s%" PRId64, k ? ", " : "", a->dims[k]);
    tt_strbuf_add(out, "]");
    bytes -= a->count * a->bytes;
    count -= a->count;
  }
  if (count > 0) {
    print_row(out, bytes > 0 ? bytes : 0, count);
    tt_strbuf_add(out, "others");
  }
  tt_live_arrays_free(&all);
  return text.data;
}

/* ---- the limit and the statistics ------------------------------------------------------------------------------- */

static int64_t memory_live_values(const tt_device *d) {
  return atomic_load_explicit(&d->live_values, memory_order_relaxed) -
         atomic_load_explicit(&d->gone_values, memory_order_relaxed);
}

tt_status tt_memory_reserve(tt_device *d, int64_t bytes) {
  int64_t limit = d->options.memory_limit;
  if (!limit || bytes <= 0) return TT_OK;
  int64_t live = tt_memory_live(d);
  if (live + bytes <= limit) return TT_OK;
  return tt_status_make(TT_OUT_OF_MEMORY,
                        "TPU out of memory. Tried to allocate %.2f MiB. The device has a limit of %.2f MiB "
                        "(TORCH_TPU_HBM_LIMIT) of which %.2f MiB are in use by %lld arrays of this process.",
                        (double)bytes / 1048576, (double)limit / 1048576, (double)live / 1048576,
                        (long long)memory_live_values(d));
}

tt_memory_stats tt_device_memory(const tt_device *d) {
  return (tt_memory_stats){
      .live_bytes = tt_memory_live(d),
      .peak_bytes = atomic_load_explicit(&d->peak_bytes, memory_order_relaxed),
      .limit_bytes = d->options.memory_limit,
      .live_values = memory_live_values(d),
      .total_values = atomic_load_explicit(&d->total_values, memory_order_relaxed),
  };
}

void tt_device_reset_peak_memory(tt_device *d) {
  tt_device_enter(d);
  atomic_store_explicit(&d->peak_bytes, tt_memory_live(d), memory_order_relaxed);
  tt_device_leave(d);
}
