/* The runtime numbers of a call, packed into one small array per class and cached by content: a learning rate that stays
 * the same is uploaded once. */
#include <stdlib.h>
#include <string.h>

#include "eager/internal.h"

static tt_number number_fetch(const tt_plan *plan, const tt_call *call, tt_storage *const *storages, const tt_number_source *source) {
  switch (source->from) {
    case TT_FROM_ARG: return call->args[source->arg].number;
    case TT_FROM_LIST: return call->args[source->arg].numbers[source->index];
    case TT_FROM_SPLAT: return storages[source->index]->value->splat;
    case TT_FROM_RNG_SEED: return (tt_number){.dtype = TT_I64, .i = (int64_t)call->args[source->arg].rng.seed};
    case TT_FROM_RNG_OFFSET: return (tt_number){.dtype = TT_I64, .i = (int64_t)call->args[source->arg].rng.offset};
    case TT_FROM_SIZE: return (tt_number){.dtype = TT_I64, .i = plan->sizes[source->index]};
  }
  return (tt_number){0};
}

void tt_number_write(const tt_number *n, tt_pack pack, void *out) {
  bool integral = tt_dtype_is_integral((tt_dtype)n->dtype);
  double re = integral ? (double)n->i : n->re, im = integral ? 0 : n->im;
  switch (pack) {
    case TT_PACK_F32: *(float *)out = integral ? (float)n->i : (float)n->re; return;
    case TT_PACK_F64: *(double *)out = re; return;
    case TT_PACK_I64: *(int64_t *)out = integral ? n->i : tt_number_truncate(re); return;
    case TT_PACK_C64: memcpy(out, (float[]){(float)re, (float)im}, 8); return;
    case TT_PACK_C128: memcpy(out, (double[]){re, im}, 16); return;
    case TT_PACK_COUNT: return;
  }
}

void tt_numbers_write(const tt_plan *plan, const tt_program *p, const tt_call *call, tt_storage *const *storages,
                      tt_pack pack, char *out) {
  size_t width = tt_dtype_bytes(tt_pack_dtype(pack));
  for (int i = 0; i < p->number_count; i++) {
    tt_number n = number_fetch(plan, call, storages, &p->numbers[i]);
    tt_number_write(&n, pack, out + (size_t)i * width);
  }
}

tt_status tt_numbers_upload(tt_device *d, const char *name, tt_pack pack, int count, const void *data, tt_value **out_value) {
  int64_t dims[1] = {count};
  int rank = count > 1;
  tt_pjrt_buffer *buffer = NULL;
  if (d->client)
    TT_TRY(tt_status_annotate(tt_buffer_from_host(d->client, 0, tt_pack_dtype(pack), rank, dims, data, &buffer), "%s", name));
  *out_value = tt_value_create(d, TT_HOLDS_ARRAY, &(tt_array_type){(uint8_t)tt_pack_dtype(pack), (uint8_t)rank, dims});
  tt_value_set_ready(*out_value, buffer);
  return TT_OK;
}

tt_status tt_numbers_pack(tt_device *d, const tt_plan *plan, const tt_call *call, tt_storage *const *storages, tt_pack pack,
                          tt_value **out_value) {
  const tt_program *p = plan->runs;
  size_t width = tt_dtype_bytes(tt_pack_dtype(pack));
  uint64_t few[4] = {0, 0, 0, 0};
  size_t bytes = (size_t)p->number_count * width;
  char *data = bytes <= sizeof few ? (char *)few : tt_malloc(bytes);
  tt_numbers_write(plan, p, call, storages, pack, data);
  if (data != (char *)few) {
    tt_status status = tt_numbers_upload(d, p->name, pack, p->number_count, data, out_value);
    free(data);
    return status;
  }
  tt_hash128 hash = tt_hash_words((uint64_t[]){few[0], few[1], few[2], few[3], (uint64_t)pack << 8 | (uint64_t)p->number_count}, 5);
  tt_packed_numbers *slot = &d->number_cache[hash.lo % TT_NUMBER_CACHE];
  if (!slot->value || slot->pack != pack || slot->count != p->number_count || memcmp(slot->bits, few, sizeof few)) {
    tt_value *fresh;
    TT_TRY(tt_numbers_upload(d, p->name, pack, p->number_count, few, &fresh));
    tt_value_release(slot->value);
    memcpy(slot->bits, few, sizeof few);
    slot->pack = pack;
    slot->count = p->number_count;
    slot->value = fresh;
  }
  tt_value_retain(slot->value);
  *out_value = slot->value;
  return TT_OK;
}
