/* Storages: filling, uploading, mapping, sharing, resizing; memory and its limit. */
#include "eager/eager_fixture.h"

static void check_element(const tensor *t, int64_t offset, float expected) {
  float x = 0;
  TT_CHECK_OK(tt_storage_read_element(t->storage, TT_F32, offset, &x));
  if (is_real || !offset) TT_CHECK(x == expected || (isnan(x) && isnan(expected)));
}

DEVICE_TEST(addresses_never_touch) {
  tt_storage *s[3] = {tt_storage_create(d, 100), tt_storage_create(d, 0), tt_storage_create(d, 1)};
  TT_CHECK(tt_storage_address(s[0]) >> 62 == 1); /* nobody can read there */
  TT_CHECK_INT_EQ(tt_storage_address(s[1]), 0);
  TT_CHECK(tt_storage_address(s[2]) > tt_storage_address(s[0]) + 100);
  TT_CHECK(tt_storage_nbytes(s[0]) == 100 && tt_storage_device(s[0]) == d);
  TT_CHECK_INT_EQ(tt_device_memory(d).live_values, 0);
  for (int i = 0; i < 3; i++) tt_storage_destroy(s[i]);
  tt_storage_destroy(NULL);
}

DEVICE_TEST(uploads_come_back) {
  int16_t data[6] = {1, -2, 3, -4, 5, -6};
  tensor t = tensor_of(d, TT_I16, DIMS(2, 3), data);
  data[0] = 100; /* the copy is taken */
  tt_host_view view;
  TT_CHECK_OK(tt_storage_map(t.storage, TT_I16, &view));
  TT_CHECK(!view.is_copy && !memcmp(view.data, (int16_t[]){1, -2, 3, -4, 5, -6}, sizeof data));
  drop(&t); /* the view keeps what it shows */
  TT_CHECK(((const int16_t *)view.data)[5] == -6);
  tt_storage_unmap(&view);
  TT_CHECK(!view.data);
}

/* A plugin that can't show its memory: the host gets a copy. (Once lost, the mock never shows it again.) */
static void map_copies(tt_device *d) {
  tensor t = counting(d, 3);
  mock.lack_optional(true);
  for (int i = 0; i < 2; i++) {
    tt_host_view view;
    TT_CHECK_OK(tt_storage_map(t.storage, TT_F32, &view));
    TT_CHECK(view.is_copy && ((const float *)view.data)[2] == 3);
    tt_storage_unmap(&view);
  }
  mock.fail_nth(TT_MOCK_TO_HOST, 1);
  tt_host_view view;
  CHECK_FAILS(tt_storage_map(t.storage, TT_F32, &view), TT_INTERNAL, "injected");
  TT_CHECK(!view.data);
  drop(&t);
}

DEVICE_TEST(fills_become_splats_where_they_cover) {
  tensor base = tensor_empty(d, TT_F32, DIMS(2, 3));
  fill(&base, 2.5);
  check_element(&base, 5, 2.5f);
  tt_host_view view;
  TT_CHECK_OK(tt_storage_map(base.storage, TT_F32, &view));
  for (int i = 0; i < 6; i++) TT_CHECK(((const float *)view.data)[i] == 2.5f);
  tt_storage_unmap(&view);
  tensor transposed = tensor_view(&base, DIMS(3, 2), ((int64_t[]){1, 3}), 0);
  fill(&transposed, 4);
  check_element(&base, 0, 4);
  tensor part = tensor_view(&base, DIMS(2, 2), ((int64_t[]){3, 1}), 0);
  tt_tensor not_all = as_tensor(&part);
  bool done = true;
  TT_CHECK_OK(tt_storage_fill(&not_all, &(tt_number){.dtype = TT_F64, .re = 9}, &done));
  TT_CHECK(!done);
  TT_CHECK_INT_EQ(tt_device_memory(d).live_bytes, 0);
  drop(&base);
}

/* One number in every dtype, as PyTorch's CPU stores it. */
DEVICE_TEST(splats_are_stored_as_numbers_of_their_dtype) {
  static const struct {
    tt_dtype dtype;
    double number;
    uint8_t bytes[16];
  } cases[] = {{TT_BOOL, 0.5, {1}},         {TT_I8, -3.75, {0xfd}},
               {TT_U8, 200, {200}},         {TT_I16, -2, {0xfe, 0xff}},
               {TT_BF16, 1.5, {0xc0, 0x3f}}, {TT_F16, 1.5, {0x00, 0x3e}},
               {TT_F64, 1, {0, 0, 0, 0, 0, 0, 0xf0, 0x3f}},
               {TT_C64, 1, {0, 0, 0x80, 0x3f}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tensor t = tensor_empty(d, cases[i].dtype, DIMS(2));
    fill(&t, cases[i].number);
    uint8_t element[16];
    TT_CHECK_OK(tt_storage_read_element(t.storage, cases[i].dtype, 1, element));
    if (memcmp(element, cases[i].bytes, tt_dtype_bytes(cases[i].dtype)))
      TT_CHECK_FAILED("%g as %s", cases[i].number, tt_dtype_name(cases[i].dtype));
    drop(&t);
  }
}

DEVICE_TEST(uninitialised_reads) {
  tensor t = tensor_empty(d, TT_F32, DIMS(3));
  check_element(&t, 0, NAN);
  int64_t integer = 5;
  TT_CHECK_OK(tt_storage_read_element(t.storage, TT_I64, 0, &integer));
  TT_CHECK_INT_EQ(integer, 0);
  tt_host_view view;
  TT_CHECK_OK(tt_storage_map(t.storage, TT_F64, &view)); /* 12 bytes are one and a half: readable all the same */
  TT_CHECK(view.is_copy && isnan(((const double *)view.data)[0]));
  tt_storage_unmap(&view);
  TT_CHECK(tt_storage_is_empty(t.storage));
  drop(&t);
}

DEVICE_TEST(sharing_copies_nothing_and_separates_on_write) {
  tensor a = counting(d, 2), b = tensor_empty(d, TT_F32, DIMS(2));
  tt_storage_share(b.storage, a.storage);
  TT_CHECK_INT_EQ(tt_device_memory(d).live_values, 1);
  INTO(d, &b, "neg", arg(&b));
  CHECK_FLOATS(&a, 1, 2);
  CHECK_FLOATS(&b, -1, -2);
  tt_storage_share(b.storage, b.storage);
  CHECK_FLOATS(&b, -1, -2);
  drop(&a);
  CHECK_FLOATS(&b, -1, -2);
  drop(&b);
}

DEVICE_TEST(resizing_keeps_what_fits) {
  tensor t = counting(d, 3);
  uint64_t address = tt_storage_address(t.storage);
  TT_CHECK_OK(tt_storage_resize(t.storage, 20));
  TT_CHECK(tt_storage_nbytes(t.storage) == 20 && tt_storage_address(t.storage) != address);
  check_element(&t, 2, 3);
  check_element(&t, 3, NAN);
  tensor longer = tensor_view(&t, DIMS(5), ((int64_t[]){1}), 0), r = CALL(d, "neg", arg(&longer));
  CHECK_FLOATS(&r, -1, -2, -3, NAN, NAN);
  TT_CHECK_OK(tt_storage_resize(t.storage, 6)); /* no whole number of elements */
  check_element(&t, 0, 1);
  TT_CHECK_OK(tt_storage_resize(t.storage, 0));
  TT_CHECK(tt_storage_is_empty(t.storage) && !tt_storage_address(t.storage));
  TT_CHECK_OK(tt_storage_resize(t.storage, 12));
  TT_CHECK(tt_storage_is_empty(t.storage));
  fill(&t, 7);
  TT_CHECK_OK(tt_storage_resize(t.storage, 8));
  check_element(&t, 1, 7);
  drop(&r);
  drop(&t);
}

/* ---- memory ------------------------------------------------------------------------------------------------------- */

DEVICE_TEST(memory_is_counted) {
  tensor a = counting(d, 1000);
  tensor b = CALL(d, "neg", arg(&a));
  tt_memory_stats m = tt_device_memory(d);
  TT_CHECK(m.live_bytes == 8000 && m.live_values == 2 && m.peak_bytes == 8000 && m.total_values == 2 && !m.limit_bytes);
  if (!is_real) TT_CHECK_INT_EQ(mock.live_bytes(), 8000);
  drop(&a);
  TT_CHECK_INT_EQ(tt_device_memory(d).live_bytes, 4000);
  TT_CHECK_INT_EQ(tt_device_memory(d).peak_bytes, 8000);
  tt_device_reset_peak_memory(d);
  TT_CHECK_INT_EQ(tt_device_memory(d).peak_bytes, 4000);
  drop(&b);
}

static void limited(tt_device *d) {
  tensor a = counting(d, 1000), r;
  static const float more[1000];
  tensor b = tensor_empty(d, TT_F32, DIMS(1000)), c = tensor_empty(d, TT_F32, DIMS(1000));
  TT_CHECK_OK(tt_storage_upload(b.storage, TT_F32, DIMS(1000), more));
  for (int i = 0; i < 2; i++) {
    CHECK_FAILS(tt_storage_upload(c.storage, TT_F32, DIMS(1000), more), TT_OUT_OF_MEMORY, "TORCH_TPU_HBM_LIMIT");
    CHECK_FAILS(TRY_CALL(d, &r, "neg", arg(&a)), TT_OUT_OF_MEMORY, "in use by 2 arrays");
    CHECK_FAILS(tt_storage_resize(a.storage, 12000), TT_OUT_OF_MEMORY, "out of memory");
  }
  TT_CHECK_INT_EQ(tt_device_memory(d).live_values, 2);
  TT_CHECK(tt_storage_is_empty(c.storage) && tt_storage_nbytes(a.storage) == 4000);
  INTO(d, &a, "neg", arg(&a)); /* in place takes no new memory */
  TT_CHECK_INT_EQ(tt_device_cache_stats(d).donated, 1);
  check_element(&a, 0, is_real ? -1 : 1); /* the mock's result has the input's bytes */
  drop(&b);
  r = CALL(d, "neg", arg(&a)); /* there is room again */
  TT_CHECK_INT_EQ(tt_device_memory(d).limit_bytes, 8192);
  TT_CHECK(tt_device_memory(d).peak_bytes <= 8192);
  drop(&r);
  drop(&a);
  drop(&c);
}

TT_TEST(the_memory_limit_holds) {
  device_options.memory_limit = 8192;
  tt_device *d = mock_open();
  limited(d);
  mock_end(d);
  const char *path = getenv("TT_TEST_PLUGIN");
  if (!path) return;
  device_options.memory_limit = 8192;
  is_real = true;
  d = device_open(path);
  limited(d);
  device_end(d);
  device_options = (tt_device_options){0};
}

DEVICE_TEST(live_arrays_are_listed) {
  tensor a = counting(d, 5000), b = counting(d, 5000), c = counting(d, 12500), small = counting(d, 4);
  INTO(d, &a, "neg", arg(&a)); /* donated: still one array */
  tt_live_arrays all = tt_device_live_arrays(d);
  TT_CHECK_INT_EQ(all.count, 2);
  TT_CHECK(all.arrays[0].count == 1 && all.arrays[0].bytes == 50000 && all.arrays[0].dims[0] == 12500);
  TT_CHECK(all.arrays[1].count == 2 && all.arrays[1].bytes == 20000 && all.arrays[1].rank == 1);
  tt_live_arrays_free(&all);
  char *table = tt_device_memory_table(d, 1);
  TT_CHECK(strstr(table, "float32 [12500]") && !strstr(table, "[5000]") && strstr(table, "0.04 MiB        3  others"));
  free(table);
  drop(&c);
  drop(&a);
  drop(&b);
  all = tt_device_live_arrays(d);
  TT_CHECK_INT_EQ(all.count, 0);
  tt_live_arrays_free(&all);
  drop(&small);
}

/* The device's own limit. */
MOCK_TEST(an_allocation_that_fails_frees_the_rest, 0) {
  tensor a = counting(d, 1000), r;
  mock.memory_limit(6000);
  CHECK_FAILS(TRY_CALL(d, &r, "neg", arg(&a)), TT_OUT_OF_MEMORY, "out of memory");
  CHECK_FAILS(tt_storage_upload(a.storage, TT_F32, DIMS(1000), (float[1000]){0}), TT_OUT_OF_MEMORY, "out of memory");
  TT_CHECK_INT_EQ(tt_device_memory(d).live_bytes, 4000);
  mock.memory_limit(8000);
  r = CALL(d, "neg", arg(&a));
  drop(&r);
  drop(&a);
}

/* Last: the mock loses this feature for good. */
MOCK_TEST(maps_without_access_are_copies, 0) { map_copies(d); }
