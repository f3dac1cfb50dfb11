/* Histograms: how many points, or how much weight, fall between edges. histc, histogram, histogramdd. */
#include "ops/array.h"

#include <math.h>

static tt_dtype dtype_of(tt_lower *l, int arg) { return (tt_dtype)tt_tensor_arg_meta(l, arg)->dtype; }

/* ---- points and edges --------------------------------------------------------------------------------------------- */

typedef struct histogram {
  tt_dtype dtype;
  int count;                      /* of dimensions */
  int64_t points;
  hlo_value x;                    /* [points, count] */
  hlo_value weight;               /* [points]; none: 1 each */
  hlo_value edges[TT_MAX_RANK];   /* [bins + 1] each */
} histogram;

/* self as points: each element by itself, or each row of the last dimension. */
static bool read_points(tt_lower *l, bool by_row, int weight_arg, histogram *h) {
  const tt_tensor *self = tt_tensor_arg_meta(l, 0);
  *h = (histogram){.dtype = (tt_dtype)self->dtype, .count = 1, .points = 1};
  if (by_row && self->rank < 2) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "torch.histogramdd: input tensor should have at least 2 dimensions, but got %d", self->rank);
    return false;
  }
  for (int d = 0; d < self->rank - by_row; d++) h->points *= self->sizes[d];
  int64_t count = by_row ? self->sizes[self->rank - 1] : 1;
  if (count > TT_MAX_RANK) hlo_fail(l->b, TT_INVALID_ARGUMENT, "torch.histogramdd: too many dimensions");
  else h->count = (int)count;
  h->x = hlo_reshape(l->b, tt_tensor_arg(l, 0), 2, (int64_t[]){h->points, h->count});
  if (!tt_arg_given(l, weight_arg)) return !hlo_failed(l->b);
  h->weight = tt_flatten(l, tt_tensor_arg(l, weight_arg));
  if (tt_elem(h->weight) != h->dtype) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should "
             "have the same dtype, but got input(%s), and weight(%s)", tt_dtype_scalar_name(h->dtype),
             tt_dtype_scalar_name(tt_elem(h->weight)));
  } else if (tt_numel(h->weight) != h->points) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "torch.histogramdd: if weight tensor is provided it should have the same shape as the "
             "input tensor excluding its innermost dimension, but got input with shape [%lld, %d] and weight with shape [%lld]",
             (long long)h->points, h->count, (long long)tt_numel(h->weight));
  }
  return !hlo_failed(l->b);
}

static hlo_value column(tt_lower *l, const histogram *h, int d) {
  return tt_flatten(l, hlo_slice_dim(l->b, h->x, 1, d, d + 1, 1));
}

/* The range of the data, or 0 to 1 if there is none. */
static void range_of_data(tt_lower *l, const histogram *h, int d, hlo_value *low, hlo_value *high) {
  tt_axes all = tt_axes_one(0, false);
  *low = h->points ? tt_reduce_axes(l, column(l, h, d), HLO_REDUCE_MIN, &all) : hlo_scalar_i64(l->b, h->dtype, 0);
  *high = h->points ? tt_reduce_axes(l, column(l, h, d), HLO_REDUCE_MAX, &all) : hlo_scalar_i64(l->b, h->dtype, 1);
}

/* Edges at equal distances; an empty range is widened. The range of all dimensions is static, if it is given. */
static hlo_value even_edges(tt_lower *l, const histogram *h, int d, int64_t bins, int range_arg) {
  hlo_builder *b = l->b;
  hlo_value low, high;
  if (tt_arg_given(l, range_arg)) {
    low = tt_list_number(l, range_arg, 2 * d, h->dtype);
    high = tt_list_number(l, range_arg, 2 * d + 1, h->dtype);
  } else {
    range_of_data(l, h, d, &low, &high);
  }
  tt_check(l, hlo_and(b, hlo_is_finite(b, low), hlo_is_finite(b, high)), TT_INVALID_ARGUMENT,
           "torch.histogramdd: a dimension's range is not finite");
  tt_check(l, hlo_compare(b, HLO_LE, low, high), TT_INVALID_ARGUMENT, "torch.histogramdd: min should not exceed max");
  hlo_value is_empty = hlo_compare(b, HLO_EQ, low, high), half = hlo_like_f64(b, low, 0.5);
  low = hlo_select(b, is_empty, hlo_sub(b, low, half), low);
  high = hlo_select(b, is_empty, hlo_add(b, high, half), high);
  return tt_spaced(l, low, high, bins + 1);
}

static bool bins_fit(tt_lower *l, const histogram *h, int range_arg, int64_t bins, int d) {
  const char *name = tt_arg_given(l, range_arg) ? "histogram_cpu" : "histogramdd";
  if (h->dtype != TT_F32 && h->dtype != TT_F64) {
    hlo_fail(l->b, TT_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", name, tt_dtype_scalar_name(h->dtype));
  } else if (bins <= 0) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "torch.histogram(): bins must be > 0, but got %lld for dimension %d", (long long)bins, d);
  } else if (tt_arg_given(l, range_arg) && tt_list_count(l, range_arg) != 2 * h->count) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "torch.histogramdd: for a %d-dimensional histogram range should have %d elements, but got %d",
             h->count, 2 * h->count, tt_list_count(l, range_arg));
  }
  return !hlo_failed(l->b);
}

static bool edges_fit(tt_lower *l, const histogram *h, hlo_value edges, int d) {
  if (!tt_dtype_is_float(h->dtype)) {
    hlo_fail(l->b, TT_NOT_IMPLEMENTED, "\"histogram_cpu\" not implemented for '%s'", tt_dtype_scalar_name(h->dtype));
  } else if (tt_elem(edges) != h->dtype) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input "
             "with dtype %s and bins for dimension %d with dtype %s", tt_dtype_scalar_name(h->dtype), d,
             tt_dtype_scalar_name(tt_elem(edges)));
  } else if (tt_rank(edges) != 1) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "torch.histogramdd: bins tensor should have one dimension, but got %d dimensions in the "
             "bins tensor for dimension %d", tt_rank(edges), d);
  } else if (tt_numel(edges) == 0) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "torch.histogramdd: bins tensor should have at least 1 element, but got 0 elements in the "
             "bins tensor for dimension %d", d);
  } else if (tt_numel(edges) == 1) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "torch.histogram(): bins must be > 0, but got 0 for dimension %d", d);
  }
  return !hlo_failed(l->b);
}

/* ---- counting ----------------------------------------------------------------------------------------------------- */

/* The bin of each point, counted through all dimensions; one behind the last for what lies outside, or is NaN. */
static hlo_value bin_of_points(tt_lower *l, const histogram *h, int64_t bins_in_all) {
  hlo_builder *b = l->b;
  tt_dtype type = bins_in_all < INT32_MAX ? TT_I32 : TT_I64;
  hlo_value bin = hlo_full_i64(b, type, 1, &h->points, 0), inside = hlo_full_i64(b, TT_BOOL, 1, &h->points, 1);
  for (int d = 0; d < h->count; d++) {
    hlo_value x = column(l, h, d), edges = h->edges[d];
    int64_t bins = tt_numel(edges) - 1;
    hlo_value low = hlo_reshape(b, hlo_slice_dim(b, edges, 0, 0, 1, 1), 0, tt_ones);
    hlo_value high = hlo_reshape(b, hlo_slice_dim(b, edges, 0, bins, bins + 1, 1), 0, tt_ones);
    inside = hlo_and(b, inside, hlo_and(b, hlo_compare(b, HLO_GE, x, low), hlo_compare(b, HLO_LE, x, high)));
    hlo_value at = hlo_convert(b, tt_bisect(l, edges, HLO_NONE, x, true), type); /* the last edge belongs to the last bin */
    at = hlo_min(b, hlo_sub(b, at, hlo_like_i64(b, at, 1)), hlo_scalar_i64(b, type, bins - 1));
    bin = hlo_add(b, hlo_mul(b, bin, hlo_scalar_i64(b, type, bins)), at);
  }
  return hlo_select(b, inside, bin, hlo_like_i64(b, bin, bins_in_all));
}

static hlo_value as_density(tt_lower *l, const histogram *h, hlo_value counts) {
  hlo_builder *b = l->b;
  tt_axes all = tt_axes_all(tt_rank(counts), false);
  counts = hlo_div(b, counts, tt_reduce_axes(l, counts, HLO_REDUCE_ADD, &all));
  for (int d = 0; d < h->count; d++) {
    int64_t bins = tt_size(counts, d);
    hlo_value widths = hlo_sub(b, hlo_slice_dim(b, h->edges[d], 0, 1, bins + 1, 1), hlo_slice_dim(b, h->edges[d], 0, 0, bins, 1));
    counts = hlo_div(b, counts, tt_spread(l, widths, d, tt_rank(counts), tt_dims(counts)));
  }
  return counts;
}

static void count_points(tt_lower *l, const histogram *h, bool density) {
  hlo_builder *b = l->b;
  int64_t dims[TT_MAX_RANK], in_all = 1;
  for (int d = 0; d < h->count; d++) in_all *= dims[d] = tt_numel(h->edges[d]) - 1;
  hlo_value counts = hlo_full_i64(b, h->dtype, 1, &in_all, 0);
  hlo_value weight = hlo_is_none(h->weight) ? hlo_full_i64(b, h->dtype, 1, &h->points, 1) : h->weight;
  if (h->count > 0) counts = tt_rows_put(l, counts, bin_of_points(l, h, in_all), weight, 0, HLO_REDUCE_ADD);
  counts = hlo_reshape(b, counts, h->count, dims);
  tt_result(l, density ? as_density(l, h, counts) : counts);
}

/* Arguments: self, bins, range, weight, density. */
static void lower_histogram_count(tt_lower *l) {
  histogram h;
  int64_t bins = tt_int_arg(l, 1, 100);
  if (!read_points(l, false, 3, &h) || !bins_fit(l, &h, 2, bins, 0)) return;
  h.edges[0] = even_edges(l, &h, 0, bins, 2);
  count_points(l, &h, tt_bool_arg(l, 4));
  tt_result(l, h.edges[0]);
}

/* Arguments: self, bins, weight, density. */
static void lower_histogram_edges(tt_lower *l) {
  histogram h;
  if (!read_points(l, false, 2, &h)) return;
  h.edges[0] = tt_tensor_arg(l, 1);
  if (!edges_fit(l, &h, h.edges[0], 0)) return;
  count_points(l, &h, tt_bool_arg(l, 3));
  tt_result(l, h.edges[0]);
}

/* Arguments: self, bins, range, weight, density. */
static bool read_even_edges(tt_lower *l, histogram *h) {
  int count;
  const int64_t *bins = tt_ints_arg(l, 1, &count);
  if (!read_points(l, true, 3, h)) return false;
  if (count != h->count) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "histogramdd: The size of bins must be equal to the innermost dimension of the input.");
    return false;
  }
  for (int d = 0; d < h->count; d++) {
    if (!bins_fit(l, h, 2, bins[d], d)) return false;
    h->edges[d] = even_edges(l, h, d, bins[d], 2);
  }
  return true;
}

static void lower_histogramdd_edges(tt_lower *l) {
  histogram h;
  if (!read_even_edges(l, &h)) return;
  for (int d = 0; d < h.count; d++) tt_result(l, h.edges[d]);
}

static void lower_histogramdd_count(tt_lower *l) {
  histogram h;
  if (read_even_edges(l, &h)) count_points(l, &h, tt_bool_arg(l, 4));
}

/* Arguments: self, bins, weight, density. */
static void lower_histogramdd_tensors(tt_lower *l) {
  histogram h;
  if (!read_points(l, true, 2, &h)) return;
  if (tt_list_count(l, 1) != h.count) {
    hlo_fail(l->b, TT_INVALID_ARGUMENT, "torch.histogramdd: expected %d sequences of bin edges for a %d-dimensional histogram but "
             "got %d", h.count, h.count, tt_list_count(l, 1));
    return;
  }
  for (int d = 0; d < h.count; d++) {
    h.edges[d] = tt_list_tensor(l, 1, d);
    if (!edges_fit(l, &h, h.edges[d], d)) return;
  }
  count_points(l, &h, tt_bool_arg(l, 3));
}

/* ---- histc ------------------------------------------------------------------------------------------------------- */

/* Arguments: self, bins, min, max. min == max: the range of the data. */
static void lower_histc(tt_lower *l) {
  hlo_builder *b = l->b;
  tt_dtype own = dtype_of(l, 0), type = own == TT_F64 ? TT_F64 : TT_F32;
  int64_t bins = tt_int_arg(l, 1, 100);
  double low_number = tt_float_arg(l, 2), high_number = tt_float_arg(l, 3);
  if (bins <= 0 || low_number > high_number) {
    hlo_fail(b, TT_INVALID_ARGUMENT, "%s",
             bins <= 0 ? "torch.histc(): bins must be > 0" : "torch.histc: max must be larger than min");
    return;
  }
  hlo_value x = tt_flatten(l, tt_cast(l, tt_tensor_arg(l, 0), type)), counts = hlo_full_i64(b, type, 1, &bins, 0);
  hlo_value low = hlo_scalar_f64(b, type, low_number), high = hlo_scalar_f64(b, type, high_number);
  if (tt_numel(x) == 0) {
    tt_result(l, tt_cast(l, counts, own));
    return;
  }
  if (low_number == high_number) {
    tt_axes axes = tt_axes_one(0, false);
    low = tt_reduce_axes(l, x, HLO_REDUCE_MIN, &axes);
    high = tt_reduce_axes(l, x, HLO_REDUCE_MAX, &axes);
    hlo_value flat = hlo_compare(b, HLO_EQ, low, high), one = hlo_like_i64(b, low, 1);
    low = hlo_select(b, flat, hlo_sub(b, low, one), low);
    high = hlo_select(b, flat, hlo_add(b, high, one), high);
  }
  hlo_value inside = hlo_and(b, hlo_compare(b, HLO_GE, x, low), hlo_compare(b, HLO_LE, x, high));
  hlo_value at = hlo_div(b, hlo_mul(b, hlo_sub(b, x, low), hlo_scalar_i64(b, type, bins)), hlo_sub(b, high, low));
  at = hlo_select(b, inside, at, hlo_like_i64(b, at, 0));
  at = hlo_min(b, hlo_convert(b, at, TT_I32), hlo_scalar_i64(b, TT_I32, bins - 1));
  counts = tt_rows_put(l, counts, at, hlo_convert(b, inside, type), 0, HLO_REDUCE_ADD);
  tt_result(l, tt_cast(l, counts, own));
}

TT_OP_FAMILY(histogram,
    TT_ROW("histc", lower_histc, .static_numbers = TT_STATIC(2) | TT_STATIC(3)),
    TT_ROW("histogram.bin_ct", lower_histogram_count, .flags = TT_OP_CHECKS_INDEX),
    TT_ROW("histogram.bins_tensor", lower_histogram_edges),
    TT_ROW("_histogramdd_bin_edges", lower_histogramdd_edges, .flags = TT_OP_CHECKS_INDEX),
    TT_ROW("_histogramdd_from_bin_cts", lower_histogramdd_count, .flags = TT_OP_CHECKS_INDEX),
    TT_ROW("_histogramdd_from_bin_tensors", lower_histogramdd_tensors));
