/* The lowering's context: arguments, results, updates, checks. */
#include "ops/lower_state.h"

#include <math.h>
#include <string.h>

#include "view/view.h"

hlo_value tt_poison(const tt_lower *l) { return hlo_fail(l->b, TT_INTERNAL, "the lowering has failed before"); }

void tt_lower_row(tt_lower *l) {
  if (l->op->each)
    tt_lower_foreach(l);
  else if (l->op->lower)
    l->op->lower(l);
  else
    tt_lower_pointwise(l);
}

/* ---- arguments ---------------------------------------------------------------------------------------------- */

const tt_arg *tt_arg_at(const tt_lower *l, int arg) {
  static const tt_arg none = {.kind = TT_ARG_NONE};
  return arg >= 0 && arg < l->state->call->arg_count ? &l->state->args[arg] : &none;
}

static hlo_value wrong_kind(const tt_lower *l, int arg, const char *wanted) {
  static const char *const names[] = {
      [TT_ARG_NONE] = "None", [TT_ARG_TENSOR] = "a tensor", [TT_ARG_TENSORS] = "a list of tensors",
      [TT_ARG_NUMBER] = "a number", [TT_ARG_NUMBERS] = "a list of numbers", [TT_ARG_INT] = "an int",
      [TT_ARG_BOOL] = "a bool", [TT_ARG_INTS] = "a list of ints", [TT_ARG_DTYPE] = "a dtype",
      [TT_ARG_STRING] = "a string", [TT_ARG_RNG] = "a generator"};
  const tt_arg *a = tt_arg_at(l, arg);
  bool absent = a->kind == TT_ARG_TENSOR && !a->tensor.storage;
  return hlo_fail(l->b, TT_INTERNAL, "argument %d is %s where %s is needed", arg, absent ? "no tensor" : names[a->kind],
                  wanted);
}

bool tt_arg_given(const tt_lower *l, int arg) {
  const tt_arg *a = tt_arg_at(l, arg);
  return a->kind == TT_ARG_TENSOR ? a->tensor.storage != NULL : a->kind != TT_ARG_NONE;
}

bool tt_arg_is_tensor(const tt_lower *l, int arg) {
  return tt_arg_at(l, arg)->kind == TT_ARG_TENSOR && tt_arg_given(l, arg);
}

static tt_view view_of(const tt_tensor *t) {
  return (tt_view){(tt_dtype)t->dtype, t->rank, t->sizes, t->strides, t->offset};
}

/* Conjugation and negation are their own inverses: the same for reading and for writing. */
static hlo_value apply_flags(hlo_builder *b, hlo_value x, const tt_tensor *t) {
  if (t->flags & TT_TENSOR_CONJ) x = hlo_conj(b, x);
  return t->flags & TT_TENSOR_NEG ? hlo_neg(b, x) : x;
}

/* What nobody wrote: NaN, or 0 where there is none. */
static hlo_value nothing(hlo_builder *b, tt_dtype dtype, int rank, const int64_t *dims) {
  return hlo_full_f64(b, dtype, rank, dims, tt_dtype_is_integral(dtype) ? 0 : NAN);
}

void tt_list_next(tt_lower *l) { l->state->step++; }

static hlo_value tensor_read(tt_lower *l, const tt_tensor *t) {
  tt_site *site = hlo_failed(l->b) ? NULL : tt_site_find(l, t->storage);
  if (!site) return tt_poison(l);
  tt_view v = view_of(t);
  hlo_value written = site->step == l->state->step ? site->seen : site->after;
  if (!hlo_is_none(written)) return apply_flags(l->b, tt_view_read(l->b, written, &v), t);
  if (site->spec->holds == TT_HOLDS_NOTHING) return nothing(l->b, (tt_dtype)t->dtype, t->rank, t->sizes);
  bool same_splat = site->spec->holds == TT_HOLDS_SPLAT && site->spec->type.dtype == t->dtype;
  hlo_value x = same_splat ? hlo_broadcast_to(l->b, tt_splat_number(l, site), t->rank, t->sizes)
                           : tt_view_read(l->b, tt_site_array(l, site), &v);
  return apply_flags(l->b, x, t);
}

hlo_value tt_tensor_arg(tt_lower *l, int arg) {
  const tt_arg *a = tt_arg_at(l, arg);
  if (a->kind == TT_ARG_NUMBER) return tt_number_arg(l, arg, tt_number_dtype(l, &a->number));
  return tt_arg_is_tensor(l, arg) ? tensor_read(l, &a->tensor) : wrong_kind(l, arg, "a tensor");
}

const tt_tensor *tt_tensor_arg_meta(const tt_lower *l, int arg) {
  const tt_arg *a = tt_arg_at(l, arg);
  if (a->kind != TT_ARG_NUMBER) return tt_arg_is_tensor(l, arg) ? &a->tensor : NULL;
  tt_tensor t = {.dtype = (uint8_t)tt_number_dtype(l, &a->number)}; /* a 0-dim tensor without a storage */
  return tt_arena_copy(hlo_builder_arena(l->b), &t, sizeof t);
}

int tt_list_count(const tt_lower *l, int arg) {
  const tt_arg *a = tt_arg_at(l, arg);
  return a->kind == TT_ARG_TENSORS || a->kind == TT_ARG_NUMBERS || a->kind == TT_ARG_INTS ? a->count : 0;
}

bool tt_list_given(const tt_lower *l, int arg, int k) {
  const tt_arg *a = tt_arg_at(l, arg);
  return k >= 0 && k < tt_list_count(l, arg) && (a->kind != TT_ARG_TENSORS || a->tensors[k].storage);
}

const tt_tensor *tt_list_tensor_meta(const tt_lower *l, int arg, int k) {
  const tt_arg *a = tt_arg_at(l, arg);
  return a->kind == TT_ARG_TENSORS && tt_list_given(l, arg, k) ? &a->tensors[k] : NULL;
}

hlo_value tt_list_tensor(tt_lower *l, int arg, int k) {
  const tt_tensor *t = tt_list_tensor_meta(l, arg, k);
  return t ? tensor_read(l, t) : wrong_kind(l, arg, "a list with that tensor");
}

/* ---- numbers ------------------------------------------------------------------------------------------------ */

/* The pack whose dtype holds every number of `dtype`. A bool asks whether the number is 0, so it wants it unrounded. */
static tt_pack pack_for(tt_dtype dtype, const tt_number *n) {
  if (dtype == TT_BOOL && n) dtype = (tt_dtype)n->dtype == TT_F32 ? TT_F64 : (tt_dtype)n->dtype;
  switch (dtype) {
    case TT_C64: return TT_PACK_C64;
    case TT_C128: return TT_PACK_C128;
    case TT_F64: return TT_PACK_F64;
    default: return tt_dtype_is_float(dtype) ? TT_PACK_F32 : TT_PACK_I64;
  }
}

static hlo_value baked_number(hlo_builder *b, const tt_number *n, tt_dtype dtype) {
  if (tt_dtype_is_integral((tt_dtype)n->dtype)) return hlo_scalar_i64(b, dtype, n->i);
  if (tt_dtype_is_complex(dtype)) return hlo_scalar_complex(b, dtype, n->re, n->im);
  bool has_imaginary = tt_dtype_is_complex((tt_dtype)n->dtype) && n->im != 0;
  return hlo_scalar_f64(b, dtype, dtype == TT_BOOL ? n->re != 0 || has_imaginary : n->re);
}

static hlo_value number_value(tt_lower *l, int arg, int index, const tt_number *n, tt_dtype dtype) {
  if (hlo_failed(l->b)) return tt_poison(l);
  int ordinal = l->state->numbers->of_arg[arg][index];
  if (ordinal < 0) return baked_number(l->b, n, dtype);
  return tt_cast(l, tt_pack_number(l, pack_for(dtype, n), ordinal), dtype);
}

hlo_value tt_number_arg(tt_lower *l, int arg, tt_dtype dtype) {
  const tt_number *n = tt_number_meta(l, arg);
  if (!n) return wrong_kind(l, arg, "a number");
  bool in_list = l->state->call->args[arg].kind == TT_ARG_NUMBERS; /* a foreach row's */
  return number_value(l, arg, in_list ? l->state->member : 0, n, dtype);
}

hlo_value tt_list_number(tt_lower *l, int arg, int k, tt_dtype dtype) {
  const tt_arg *a = tt_arg_at(l, arg);
  if (a->kind != TT_ARG_NUMBERS || k < 0 || k >= a->count) return wrong_kind(l, arg, "a list with that number");
  return number_value(l, arg, k, &a->numbers[k], dtype);
}

const tt_number *tt_number_meta(const tt_lower *l, int arg) {
  const tt_arg *a = tt_arg_at(l, arg);
  return a->kind == TT_ARG_NUMBER ? &a->number : NULL;
}

static bool is_baked(const tt_lower *l, int arg, const tt_number *n) {
  return tt_number_is_baked(l->state->call->op, arg, n);
}

static double number_as_double(const tt_number *n) {
  return tt_dtype_is_integral((tt_dtype)n->dtype) ? (double)n->i : n->re;
}

bool tt_number_is(const tt_lower *l, int arg, double x) {
  const tt_number *n = tt_number_meta(l, arg);
  if (!n || !is_baked(l, arg, n)) return false;
  return number_as_double(n) == x && (!tt_dtype_is_complex((tt_dtype)n->dtype) || n->im == 0);
}

double tt_float_arg(tt_lower *l, int arg) {
  const tt_arg *a = tt_arg_at(l, arg);
  if (a->kind == TT_ARG_INT || a->kind == TT_ARG_BOOL) return (double)a->i;
  if (a->kind == TT_ARG_NUMBER && is_baked(l, arg, &a->number)) return number_as_double(&a->number);
  wrong_kind(l, arg, "a number that is static (TT_STATIC in its row)");
  return 0;
}

hlo_value tt_operand(tt_lower *l, int arg, tt_dtype dtype) {
  if (tt_number_meta(l, arg)) return tt_number_arg(l, arg, dtype);
  return tt_cast(l, tt_tensor_arg(l, arg), dtype);
}

hlo_value tt_splat_number(tt_lower *l, const tt_site *site) {
  tt_dtype dtype = (tt_dtype)site->spec->type.dtype;
  int ordinal = l->state->numbers->of_splat[site - l->state->sites];
  return tt_cast(l, tt_pack_number(l, pack_for(dtype, NULL), ordinal), dtype);
}

/* Philox counts 128-bit blocks from (low, high). The generator's offset is the high word, the call within this lowering
 * the upper 16 bits of the low one: for one seed no two streams meet before 2^48 blocks. */
hlo_value tt_rng_state(tt_lower *l) {
  tt_lower_state *s = l->state;
  int64_t one = 1;
  if (hlo_failed(l->b)) return tt_poison(l);
  if (s->numbers->seed < 0) return hlo_fail(l->b, TT_INTERNAL, "random numbers need a generator as the last argument");
  hlo_value seed = hlo_bitcast(l->b, tt_pack_number(l, TT_PACK_I64, s->numbers->seed), TT_U64);
  hlo_value offset = hlo_bitcast(l->b, tt_pack_number(l, TT_PACK_I64, s->numbers->offset), TT_U64);
  hlo_value call = hlo_full_i64(l->b, TT_U64, 1, &one, (int64_t)s->rng_calls++ << 48);
  hlo_value words[] = {hlo_reshape(l->b, seed, 1, &one), call, hlo_reshape(l->b, offset, 1, &one)};
  return hlo_concatenate(l->b, 3, words, 0);
}

/* ---- static arguments --------------------------------------------------------------------------------------- */

int64_t tt_int_arg(const tt_lower *l, int arg, int64_t if_none) {
  const tt_arg *a = tt_arg_at(l, arg);
  if (a->kind == TT_ARG_INT || a->kind == TT_ARG_BOOL || a->kind == TT_ARG_DTYPE) return a->i;
  if (a->kind != TT_ARG_NONE) wrong_kind(l, arg, "an int");
  return if_none;
}

bool tt_bool_arg(const tt_lower *l, int arg) { return tt_int_arg(l, arg, 0) != 0; }

const int64_t *tt_ints_arg(const tt_lower *l, int arg, int *out_count) {
  const tt_arg *a = tt_arg_at(l, arg);
  *out_count = a->kind == TT_ARG_INTS ? a->count : 0;
  if (a->kind != TT_ARG_INTS && a->kind != TT_ARG_NONE) wrong_kind(l, arg, "a list of ints");
  return a->kind == TT_ARG_INTS ? a->ints : NULL;
}

tt_dtype tt_dtype_arg(const tt_lower *l, int arg, tt_dtype if_none) { return (tt_dtype)tt_int_arg(l, arg, if_none); }

const char *tt_string_arg(const tt_lower *l, int arg) {
  const tt_arg *a = tt_arg_at(l, arg);
  if (a->kind == TT_ARG_STRING) return a->string;
  if (a->kind != TT_ARG_NONE) wrong_kind(l, arg, "a string");
  return "";
}

/* ---- writing ------------------------------------------------------------------------------------------------ */

/* The type of what writes compose on: what was written before, what the storage holds, or for a storage that holds
 * nothing as many elements of this dtype as fit. */
static const hlo_type *site_type(tt_lower *l, const tt_site *site, tt_dtype dtype) {
  const tt_storage_spec *spec = site->spec;
  if (!hlo_is_none(site->after)) return site->after.type;
  if (spec->holds != TT_HOLDS_NOTHING)
    return hlo_type_make(l->b, (tt_dtype)spec->type.dtype, spec->type.rank, spec->type.dims);
  int64_t count = spec->nbytes / (int64_t)tt_dtype_bytes(dtype);
  return hlo_type_make(l->b, dtype, 1, &count);
}

static hlo_value site_base(tt_lower *l, tt_site *site, const hlo_type *type) {
  if (!hlo_is_none(site->after)) return site->after;
  if (site->spec->holds == TT_HOLDS_NOTHING) return nothing(l->b, type->dtype, type->rank, type->dims);
  return tt_site_array(l, site);
}

static bool covers(const tt_view *v, const hlo_type *type) {
  return v->offset == 0 && tt_view_numel(v) * (int64_t)tt_dtype_bytes(v->dtype) ==
                               hlo_type_numel(type) * (int64_t)tt_dtype_bytes(type->dtype);
}

static hlo_value composed(tt_lower *l, tt_site *site, const tt_view *v, hlo_value value) {
  const hlo_type *type = site_type(l, site, v->dtype);
  int permutation[TT_MAX_RANK];
  if (covers(v, type) && tt_view_is_permuted_dense(v, permutation)) return hlo_transpose(l->b, value, permutation);
  bool covered = tt_view_covers(v, type->dtype, hlo_type_numel(type));
  return tt_view_write(l->b, covered ? HLO_NONE : site_base(l, site, type), type, v, value);
}

static void tensor_write(tt_lower *l, const tt_tensor *t, hlo_value value) {
  tt_view v = view_of(t);
  tt_site *site = hlo_failed(l->b) ? NULL : tt_site_find(l, t->storage);
  if (!site) return;
  if (tt_view_overlaps_itself(&v)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT,
             "unsupported operation: more than one element of the written-to tensor refers to a single memory "
             "location. Please clone() the tensor before performing the operation.");
    return;
  }
  value = apply_flags(l->b, tt_cast(l, value, v.dtype), t);
  if (hlo_failed(l->b)) return;
  bool is_first = hlo_is_none(site->after);
  if (site->step != l->state->step) site->seen = site->after;
  site->step = l->state->step;
  site->after = composed(l, site, &v, value);
  if (is_first) l->state->written[l->state->written_count++] = (int)(site - l->state->sites);
}

/* A result or an update must have exactly the shape of the tensor that it goes into. */
static bool fits(tt_lower *l, const tt_tensor *t, hlo_value value) {
  if (hlo_failed(l->b)) return false;
  if (hlo_is_none(value)) {
    hlo_fail(l->b, TT_INTERNAL, "the lowering made no value for what it writes");
    return false;
  }
  const hlo_type *type = value.type;
  if (type->rank == t->rank && (t->rank == 0 || !memcmp(type->dims, t->sizes, sizeof *t->sizes * t->rank))) return true;
  hlo_fail(l->b, TT_INVALID_ARGUMENT, "output with shape %s doesn't match the broadcast shape %s",
           tt_shape_text(l, t->rank, t->sizes), tt_shape_text(l, type->rank, type->dims));
  return false;
}

void tt_update(tt_lower *l, int arg, hlo_value value) {
  if (!tt_arg_is_tensor(l, arg))
    wrong_kind(l, arg, "a tensor");
  else if (fits(l, &tt_arg_at(l, arg)->tensor, value))
    tensor_write(l, &tt_arg_at(l, arg)->tensor, value);
}

void tt_list_update(tt_lower *l, int arg, int k, hlo_value value) {
  const tt_tensor *t = tt_list_tensor_meta(l, arg, k);
  if (!t)
    wrong_kind(l, arg, "a list with that tensor");
  else if (fits(l, t, value))
    tensor_write(l, t, value);
}

/* ---- results ------------------------------------------------------------------------------------------------ */

static void result_add(tt_lower_state *s, tt_result_info info, hlo_value array) {
  if (s->result_count == s->result_capacity) {
    s->result_capacity = s->result_capacity ? 2 * s->result_capacity : 4;
    s->results = tt_realloc(s->results, sizeof *s->results * (size_t)s->result_capacity);
  }
  s->results[s->result_count++] = (tt_lowered_result){info, array};
}

/* The tensor that a result is, without its storage. */
static tt_result_info result_info(tt_arena *keep, tt_dtype dtype, int rank, const int64_t *sizes,
                                  const int64_t *strides) {
  size_t bytes = sizeof *sizes * (size_t)rank;
  return (tt_result_info){.write = -1, .dtype = (uint8_t)dtype, .rank = (uint8_t)rank,
                          .sizes = tt_arena_copy(keep, sizes, bytes), .strides = tt_arena_copy(keep, strides, bytes)};
}

static void write_result(tt_lower *l, const tt_tensor *t, hlo_value value) {
  if (!fits(l, t, value)) return;
  if (!tt_dtype_can_cast(value.type->dtype, (tt_dtype)t->dtype)) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "result type %s can't be cast to the desired output type %s",
             tt_dtype_scalar_name(value.type->dtype), tt_dtype_scalar_name((tt_dtype)t->dtype));
    return;
  }
  l->state->converts |= value.type->dtype != t->dtype;
  tensor_write(l, t, value);
  if (hlo_failed(l->b)) return;
  tt_result_info info = result_info(l->state->keep, (tt_dtype)t->dtype, t->rank, t->sizes, t->strides);
  info.write = (int)(tt_site_find(l, t->storage) - l->state->sites);
  result_add(l->state, info, HLO_NONE);
}

static void new_result(tt_lower *l, hlo_value value) {
  int permutation[TT_MAX_RANK];
  int64_t strides[TT_MAX_RANK];
  const hlo_type *type = value.type;
  tt_layout_choose(l, l->state->result_count, type, strides);
  tt_view v = {type->dtype, type->rank, type->dims, strides, 0};
  bool is_permuted = hlo_type_numel(type) > 0 && tt_view_is_permuted_dense(&v, permutation);
  hlo_value array = is_permuted ? hlo_transpose(l->b, value, permutation) : value;
  if (hlo_failed(l->b)) return;
  tt_result_info info = result_info(l->state->keep, type->dtype, type->rank, type->dims, strides);
  info.array = tt_array_type_keep(l->state->keep, array.type);
  result_add(l->state, info, array);
}

void tt_result(tt_lower *l, hlo_value value) {
  if (hlo_failed(l->b)) return;
  const tt_call *call = l->state->call;
  int r = l->state->result_count;
  if (r < call->write_count && call->writes[r].storage)
    write_result(l, &call->writes[r], value);
  else if (hlo_is_none(value))
    hlo_fail(l->b, TT_INTERNAL, "the lowering made no value for result %d", r);
  else
    new_result(l, value);
}

void tt_result_by_columns(tt_lower *l, hlo_value value) {
  l->state->by_columns = true;
  tt_result(l, value);
  l->state->by_columns = false;
}

void tt_result_none(tt_lower *l) {
  result_add(l->state, (tt_result_info){.none = true, .write = -1}, HLO_NONE);
}

tt_dtype tt_result_dtype(const tt_lower *l, int result, tt_dtype if_new) {
  const tt_call *call = l->state->call;
  return result < call->write_count && call->writes[result].storage ? (tt_dtype)call->writes[result].dtype : if_new;
}

/* ---- checks ------------------------------------------------------------------------------------------------- */

void tt_check_found(tt_lower *l, hlo_value ok, hlo_value value, hlo_value position, tt_status_code code, const char *message) {
  if (hlo_failed(l->b)) return;
  tt_lower_state *s = l->state;
  if (s->check_count == s->check_capacity) {
    s->check_capacity = s->check_capacity ? 2 * s->check_capacity : 4;
    s->checks = tt_realloc(s->checks, sizeof *s->checks * (size_t)s->check_capacity);
    s->check_infos = tt_realloc(s->check_infos, sizeof *s->check_infos * (size_t)s->check_capacity);
  }
  s->checks[s->check_count] = (tt_lowered_check){ok, value, position};
  s->check_infos[s->check_count++] = (struct tt_check_info){code, message, s->call->op->name};
}

static hlo_value reduce_all(tt_lower *l, hlo_value x, hlo_reducer r) {
  int dims[TT_MAX_RANK];
  for (int d = 0; d < x.type->rank; d++) dims[d] = d;
  return tt_reduce(l, x, r, x.type->rank, dims, false);
}

void tt_check(tt_lower *l, hlo_value ok, tt_status_code code, const char *message) {
  if (hlo_failed(l->b)) return;
  tt_check_found(l, reduce_all(l, ok, HLO_REDUCE_AND), HLO_NONE, HLO_NONE, code, message);
}

void tt_check_value(tt_lower *l, hlo_value ok, hlo_value value, tt_status_code code, const char *message) {
  hlo_builder *b = l->b;
  if (hlo_failed(b)) return;
  value = hlo_convert(b, value, TT_I64);
  if (ok.type->dynamic) { /* positions among sizes that are not known: any wrong value will do */
    if (strstr(message, TT_CHECK_POSITION)) {
      hlo_fail(b, TT_NOT_IMPLEMENTED, "%s: a check tells a position, which varying sizes don't have", l->op->name);
      return;
    }
    hlo_value lowest = hlo_scalar_i64(b, TT_I64, INT64_MIN), wrong = reduce_all(l, hlo_select(b, ok, lowest, value), HLO_REDUCE_MAX);
    tt_check_found(l, reduce_all(l, ok, HLO_REDUCE_AND), wrong, HLO_NONE, code, message);
    return;
  }
  int64_t n = 1, one = 1;
  for (int d = 0; d < ok.type->rank; d++) n *= ok.type->dims[d];
  if (!n) return;
  hlo_value flat = hlo_reshape(b, ok, 1, &n), position = hlo_iota(b, TT_I64, 1, &n, 0), end = hlo_scalar_i64(b, TT_I64, n);
  position = reduce_all(l, hlo_select(b, flat, end, position), HLO_REDUCE_MIN);
  value = hlo_reshape(b, hlo_dynamic_slice(b, hlo_reshape(b, value, 1, &n), &position, &one), 0, NULL);
  tt_check_found(l, hlo_compare(b, HLO_EQ, position, end), value, position, code, message);
}

tt_arena *tt_kept_arena(tt_lower *l) { return l->state->keep; }
