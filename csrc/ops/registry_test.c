/* All rows of all families are well-formed and can be found. */
#include "ops/lower.h"
#include "tests/tt_test.h"

static void check_row(const tt_op *row) {
  int kinds = !!row->lower + !!row->pointwise + !!row->unary + !!row->binary + !!row->each;
  if (tt_op_find(row->name) != row) TT_CHECK_FAILED("%s: there are two rows of this name", row->name);
  if (kinds != 1) TT_CHECK_FAILED("%s: %d ways to lower it", row->name, kinds);
  if (row->unary && row->operands != 1) TT_CHECK_FAILED("%s: a unary row with %d operands", row->name, row->operands);
  if (row->binary && row->operands != 2) TT_CHECK_FAILED("%s: a binary row with %d operands", row->name, row->operands);
  if (row->pointwise && row->operands == 0) TT_CHECK_FAILED("%s: a pointwise row without operands", row->name);
  if (strchr(row->name, ':')) TT_CHECK_FAILED("%s: names have no namespace", row->name);
  const tt_op *each = row->each ? tt_op_find(row->each) : NULL;
  if (row->each && (!each || each->each)) TT_CHECK_FAILED("%s: no row %s for its members", row->name, row->each);
}

TT_TEST(rows_are_well_formed) {
  int count = 0;
  for (int i = 0; i < tt_op_family_count(); i++) {
    const tt_op_family *family = tt_op_family_get(i);
    for (int k = 0; k < family->count; k++) check_row(&family->rows[k]);
    count += family->count;
  }
  printf("%d rows in %d families\n", count, tt_op_family_count());
}

TT_TEST(unknown_names) { TT_CHECK(!tt_op_find("") && !tt_op_find("no.such") && !tt_op_find("zzz")); }
