/* Finding sequences that come again, as a machine by itself: calls go in, ends of regions come out. */
#include <stdlib.h>

#include "eager/internal.h"
#include "tests/tt_test.h"

enum { PLANS = 1024, FEW = 64, LONGEST = 60000, LIGHT = 300, HEAVY = 30 << 10 };

/* What a device does with the machine's answers. */
typedef struct recorder {
  tt_repeat repeat;
  tt_plan plans[PLANS];
  int open;                 /* calls in the open region */
  int sizes[LONGEST], count; /* of the regions that ended */
  uint64_t hashes[LONGEST];  /* of their calls */
  uint64_t calls[LONGEST];   /* of the open region */
} recorder;

static recorder *recorder_create(size_t weight) {
  recorder *r = calloc(1, sizeof *r);
  for (int i = 0; i < PLANS; i++) r->plans[i].weight = weight;
  return r;
}

static void recorder_end(recorder *r, int calls) {
  uint64_t hash = 17;
  for (int i = 0; i < calls; i++) hash = (hash ^ r->calls[i]) * 0x9E3779B97F4A7C15u;
  r->sizes[r->count] = calls;
  r->hashes[r->count++] = hash;
  r->open -= calls;
  memmove(r->calls, r->calls + calls, (size_t)r->open * sizeof *r->calls);
}

static void record(recorder *r, int plan) {
  r->calls[r->open++] = (uint64_t)plan + 1;
  tt_cuts cuts = tt_repeat_add(&r->repeat, &r->plans[plan]);
  TT_CHECK(cuts.count >= 0 && cuts.count <= 3);
  for (int i = 0; i < cuts.count; i++) {
    TT_CHECK(cuts.back[i] >= 0 && cuts.back[i] <= TT_REPEAT_WINDOW && (!i || cuts.back[i] < cuts.back[i - 1]));
    if (r->open > cuts.back[i]) recorder_end(r, r->open - cuts.back[i]);
  }
}

static void flush(recorder *r) {
  if (r->open) recorder_end(r, r->open);
  tt_repeat_reset(&r->repeat);
}

/* Distinct regions among those from `first` on. */
static int distinct(const recorder *r, int first) {
  int n = 0;
  for (int i = first; i < r->count; i++) {
    int k = first;
    while (k < i && r->hashes[k] != r->hashes[i]) k++;
    n += k == i;
  }
  return n;
}

/* `blocks` equal blocks of `length` calls between a head and a tail, each of 3 calls that come nowhere else. */
static void record_network(recorder *r, int blocks, int length) {
  for (int i = 0; i < 3; i++) record(r, i);
  for (int b = 0; b < blocks; b++)
    for (int i = 0; i < length; i++) record(r, 10 + i);
  for (int i = 3; i < 6; i++) record(r, i);
}

TT_TEST(blocks_of_a_network_become_regions) {
  recorder *r = recorder_create(HEAVY);
  for (int step = 0; step < 8; step++) {
    record_network(r, 6, 20);
    flush(r);
  }
  /* Head and first part; blocks; what is left. The same in each step. */
  TT_CHECK_INT_EQ(r->count % 8, 0);
  for (int i = 0; i < r->count; i++) TT_CHECK_INT_EQ(r->hashes[i], r->hashes[i % (r->count / 8)]);
  int whole_blocks = 0;
  for (int i = 0; i < r->count / 8; i++) whole_blocks += r->sizes[i] == 20;
  TT_CHECK(whole_blocks >= 4);
  TT_CHECK(distinct(r, 0) <= 4);
  free(r);
}

/* Nobody reads anything: after a while the same few regions come again and again. */
TT_TEST(iterations_are_cut_at_stable_places) {
  static const int lengths[] = {1, 2, 7, 50, 333, 1000};
  for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
    recorder *r = recorder_create(lengths[l] > 20 ? HEAVY : LIGHT);
    int warm = 0;
    for (int i = 0; i < 20000; i++) {
      record(r, i % lengths[l]);
      if (i == 8000) warm = r->count;
    }
    TT_CHECK(warm > 0 && r->count > warm);
    if (distinct(r, warm) != 1 || r->sizes[warm] % lengths[l])
      TT_CHECK_FAILED("length %d: %d distinct regions, of %d calls", lengths[l], distinct(r, warm), r->sizes[warm]);
    free(r);
  }
}

/* A loop over a network whose blocks come again inside the iteration, without a reader. */
TT_TEST(blocks_inside_of_iterations) {
  recorder *r = recorder_create(HEAVY);
  int warm = 0;
  for (int step = 0; step < 200; step++) {
    record_network(r, 5, 12);
    if (step == 60) warm = r->count;
  }
  TT_CHECK(r->count > warm && warm > 0);
  TT_CHECK(distinct(r, warm) <= 6);
  free(r);
}

TT_TEST(short_periods_are_grouped_until_they_are_worth_a_program) {
  recorder *light = recorder_create(LIGHT), *heavy = recorder_create(HEAVY);
  for (int i = 0; i < 3000; i++) record(light, i % 2), record(heavy, i % 2);
  int last = light->sizes[light->count - 1];
  TT_CHECK(last % 2 == 0 && last * LIGHT >= 24 << 10 && (last - 2) * LIGHT < 24 << 10);
  TT_CHECK_INT_EQ(heavy->sizes[heavy->count - 1], 2);
  free(light);
  free(heavy);
}

static unsigned next_random(unsigned *seed) { return (*seed = *seed * 1664525u + 1013904223u) >> 8; }

TT_TEST(noise_is_left_alone) {
  recorder *r = recorder_create(LIGHT);
  unsigned seed = 5;
  for (int i = 0; i < 20000; i++) record(r, (int)(next_random(&seed) % FEW));
  TT_CHECK_INT_EQ(r->count, 0);
  free(r);
}

/* A little of something else now and then: the loop is found again. */
TT_TEST(a_loop_is_found_again_after_a_disturbance) {
  recorder *r = recorder_create(HEAVY);
  int warm = 0;
  for (int round = 0; round < 30; round++) {
    for (int i = 0; i < 40 * 25; i++) record(r, i % 25);
    for (int i = 0; i < 5; i++) record(r, 40 + i);
    if (round == 9) warm = r->count;
  }
  TT_CHECK(r->count - warm > 20 * 30);
  TT_CHECK(distinct(r, warm) <= 4);
  free(r);
}

/* What came before a reset is forgotten: regions don't depend on it. */
TT_TEST(a_reset_forgets) {
  recorder *fresh = recorder_create(HEAVY), *used = recorder_create(HEAVY);
  for (int i = 0; i < 997; i++) record(used, i * i % 31);
  flush(used);
  int before = used->count;
  for (int i = 0; i < 500; i++) record(fresh, i % 9), record(used, i % 9);
  TT_CHECK(fresh->count > 10);
  TT_CHECK_INT_EQ(used->count - before, fresh->count);
  for (int i = 0; i < fresh->count; i++) TT_CHECK(fresh->hashes[i] == used->hashes[before + i]);
  free(fresh);
  free(used);
}

/* A period longer than a quarter of the window isn't followed, and nothing is read beyond the window. */
TT_TEST(periods_have_a_largest_length) {
  for (int length = TT_REPEAT_WINDOW / 4 - 1; length <= TT_REPEAT_WINDOW / 4 + 1; length++) {
    recorder *r = calloc(1, sizeof *r);
    tt_plan *plans = calloc((size_t)length, sizeof *plans);
    int cuts = 0;
    for (int i = 0; i < 6 * length; i++) cuts += tt_repeat_add(&r->repeat, &plans[i % length]).count;
    TT_CHECK_INT_EQ(cuts > 0, length <= TT_REPEAT_WINDOW / 4);
    free(plans);
    free(r);
  }
}

/* Any sequence: the answers are in order, and the same a second time. */
TT_TEST(answers_are_the_same_every_time) {
  for (unsigned seed = 1; seed <= 40; seed++) {
    recorder *r[2] = {recorder_create(seed % 3 ? LIGHT : HEAVY), recorder_create(seed % 3 ? LIGHT : HEAVY)};
    for (int k = 0; k < 2; k++) {
      unsigned state = seed;
      for (int part = 0; part < 30; part++) { /* a few calls, repeated a few times, sometimes with a flush */
        int length = 1 + (int)(next_random(&state) % 40), times = 1 + (int)(next_random(&state) % 40);
        int first = (int)(next_random(&state) % FEW);
        for (int i = 0; i < length * times && r[k]->count < LONGEST - 8; i++)
          record(r[k], (first + i % length * 3) % FEW);
        if (next_random(&state) % 4 == 0) flush(r[k]);
      }
    }
    TT_CHECK_INT_EQ(r[0]->count, r[1]->count);
    TT_CHECK(!memcmp(r[0]->hashes, r[1]->hashes, (size_t)r[0]->count * sizeof *r[0]->hashes));
    free(r[0]);
    free(r[1]);
  }
}
