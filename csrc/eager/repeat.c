/* Finds sequences of calls that come again: the blocks of a network, the iterations of a loop. A region ends with each,
 * so that all of them run the same program.
 *
 * Two runs are followed at a time, since a short period (a block) may come again inside a long one (an iteration). The
 * one that first covers a whole period wins. What is compared are plans, so the cuts depend on the sequence of calls
 * alone and are the same in every process. */
#include <string.h>

#include "eager/internal.h"

/* A region that repeats is worth a program of its own from this much text on, and may have at most this many calls. */
enum { LEAST_WEIGHT = 24 << 10, MOST_PERIOD = TT_REPEAT_WINDOW / 4 };

static const tt_plan *repeat_at(const tt_repeat *r, uint64_t position) { return r->ring[position % TT_REPEAT_WINDOW]; }

static uint64_t weight_until(const tt_repeat *r, uint64_t position) { return r->weights[position % TT_REPEAT_WINDOW]; }

/* How many calls a region of this period gets: whole periods, enough of them to be worth it. */
static uint64_t run_unit(const tt_repeat *r, uint64_t period) {
  uint64_t weight = weight_until(r, r->position) - weight_until(r, r->position - period);
  uint64_t times = weight ? (LEAST_WEIGHT + weight - 1) / weight : 1;
  return period * times <= MOST_PERIOD ? period * times : period * (MOST_PERIOD / period);
}

static void run_advance(tt_repeat *r, tt_repeat_run *run, const tt_plan *plan) {
  if (!run->period) return;
  bool goes_on = r->position >= r->begin + run->period && repeat_at(r, r->position - run->period) == plan;
  if (goes_on) run->length++;
  else *run = (tt_repeat_run){0};
}

/* Follows the distance to the plan's last place, if it isn't followed yet and there is a run to spare. */
static void run_seed(tt_repeat *r, uint64_t period) {
  tt_repeat_run *spare = NULL;
  for (int i = 1; i >= 0; i--) {
    if (r->runs[i].period == period) return;
    if (!r->runs[i].period) spare = &r->runs[i];
  }
  if (spare) *spare = (tt_repeat_run){.period = period, .length = 1};
}

static tt_cuts run_cuts(tt_repeat *r, tt_repeat_run *run) {
  if (run->cut_at) { /* it has been cut before: after each unit */
    if (r->position + 1 - run->cut_at < run->unit) return (tt_cuts){0};
    run->cut_at = r->position + 1;
    return (tt_cuts){1, {0}, (int)run->unit};
  }
  if (run->length < run->period) return (tt_cuts){0};
  if (!run->unit) run->unit = run_unit(r, run->period);
  if (run->length < run->unit) return (tt_cuts){0};
  tt_repeat_run winner = *run;
  winner.cut_at = r->position + 1;
  r->runs[0] = winner;
  r->runs[1] = (tt_repeat_run){0};
  /* The unit that has just ended, and the one before it if the period began there. */
  if (winner.unit == winner.period) return (tt_cuts){3, {2 * (int)winner.unit, (int)winner.unit, 0}, (int)winner.unit};
  return (tt_cuts){2, {(int)winner.unit, 0}, (int)winner.unit};
}

tt_cuts tt_repeat_add(tt_repeat *r, tt_plan *plan) {
  uint64_t at = r->position, last = plan->last_seen ? plan->last_seen - 1 : 0;
  bool seen = plan->last_seen && last >= r->begin && at - last <= MOST_PERIOD;
  r->ring[at % TT_REPEAT_WINDOW] = plan;
  r->weights[at % TT_REPEAT_WINDOW] = (at > r->begin ? weight_until(r, at - 1) : 0) + plan->weight;
  plan->last_seen = at + 1;
  for (int i = 0; i < 2; i++) run_advance(r, &r->runs[i], plan);
  if (seen) run_seed(r, at - last);
  tt_cuts cuts = {0};
  for (int i = 0; i < 2 && !cuts.count; i++)
    if (r->runs[i].period) cuts = run_cuts(r, &r->runs[i]);
  r->position++;
  return cuts;
}

void tt_repeat_reset(tt_repeat *r) {
  r->begin = r->position;
  memset(r->runs, 0, sizeof r->runs);
}
