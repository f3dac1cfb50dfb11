/* Compares abi.h with the reference header, where a build has one (TT_PJRT_HEADER is its path, in quotes).
 *
 * The names of both clash, so this file is compiled twice: with TT_PJRT_REFERENCE it lists the layouts of the reference
 * header, without it those of abi.h, and checks that they are the same. */
#include <stddef.h>
#include <stdint.h>

typedef struct layout {
  const char *name;
  size_t offset, size;
} layout;

enum { MAX_LAYOUTS = 1024 };

/* Fills in what the lists of abi_list.h name; gives how many. */
size_t tt_pjrt_reference_layouts(layout *out);

#ifdef TT_PJRT_REFERENCE
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include TT_PJRT_HEADER
#pragma GCC diagnostic pop

#include "pjrt/abi_list.h"
#define LIST_LAYOUTS size_t tt_pjrt_reference_layouts
#define SLOT(name) PJRT_##name
#define VERSION pjrt_api_version
#else
#include "pjrt/abi.h"
#include "tests/tt_test.h"
#define LIST_LAYOUTS static size_t our_layouts
#define SLOT(name) name
#define VERSION version
#endif

/* Structs that abi.h declares by hand. */
#define BY_HAND(A, F)                                                                                       \
  A(NamedValue, F(, name) F(, name_size) F(, type) F(, string_value) F(, int64_value) F(, int64_array_value) \
    F(, float_value) F(, bool_value) F(, value_size))                                                       \
  A(Buffer_MemoryLayout_Tiled, F(, minor_to_major) F(, minor_to_major_size) F(, tile_dims)                  \
    F(, tile_dim_sizes) F(, num_tiles))                                                                     \
  A(Buffer_MemoryLayout_Strides, F(, byte_strides) F(, num_byte_strides))                                   \
  A(Buffer_MemoryLayout, F(, tiled) F(, strides) F(, type))                                                 \
  A(Api_Version, F(, major_version) F(, minor_version))                                                     \
  A(Api, F(, VERSION))

#define STRUCT(name, fields)                                                                    \
  {                                                                                             \
    typedef PJRT_##name row;                                                                    \
    out[n++] = (layout){"PJRT_" #name, offsetof(row, extension_start), sizeof(row)};            \
    fields                                                                                      \
  }
#define FIELD(type, field) out[n++] = (layout){#field, offsetof(row, field), sizeof(((row *)0)->field)};
#define TABLE_SLOT(name) out[n++] = (layout){#name, offsetof(PJRT_Api, SLOT(name)), sizeof(void *)};

LIST_LAYOUTS(layout *out) {
  size_t n = 0;
  TT_PJRT_ARGS(STRUCT, FIELD)
  BY_HAND(STRUCT, FIELD)
  TT_PJRT_SLOTS(TABLE_SLOT, TABLE_SLOT, TABLE_SLOT, TABLE_SLOT)
  return n;
}

#ifndef TT_PJRT_REFERENCE
TT_TEST(layouts_are_those_of_the_reference_header) {
  static layout ours[MAX_LAYOUTS], reference[MAX_LAYOUTS];
  size_t count = our_layouts(ours);
  TT_CHECK_INT_EQ(tt_pjrt_reference_layouts(reference), count);
  const char *owner = "";
  for (size_t i = 0; i < count; i++) {
    if (!strncmp(ours[i].name, "PJRT_", 5)) owner = ours[i].name;
    if (ours[i].offset == reference[i].offset && ours[i].size == reference[i].size) continue;
    TT_CHECK_FAILED("%s, %s: offset %zu and size %zu here, %zu and %zu in the reference header", owner, ours[i].name,
                    ours[i].offset, ours[i].size, reference[i].offset, reference[i].size);
  }
  printf("%zu layouts compared\n", count);
}
#endif
