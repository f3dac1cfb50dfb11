/* Graphs: a fixed sequence of calls as one program. A thread captures the calls that it makes over placeholders, once; the
 * graph then runs with real storages in their place, as often as wanted.
 *
 * While a thread captures, its calls are recorded and not run. What it makes has shapes and no contents: reading fails. */
#ifndef TT_EAGER_GRAPH_H
#define TT_EAGER_GRAPH_H

#include "base/strbuf.h"
#include "eager/eager.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tt_capture tt_capture;
typedef struct tt_graph tt_graph;

/* From here on this thread's calls are captured. Fails if it captures already. */
tt_status tt_capture_begin(tt_device *d, tt_capture **out_capture) TT_MUST_USE;
/* The next input, one for each storage: a placeholder that looks like what `like` holds now, owned by the caller. Inputs come before calls. */
tt_status tt_capture_input(tt_capture *c, tt_storage *like, tt_storage **out_placeholder) TT_MUST_USE;
/* From here on symbols (hlo/hlo.h) in sizes stand for sizes up to these bounds, which a run gives. An operator that has no
 * form for such sizes fails (TT_NOT_IMPLEMENTED). Before all inputs. */
void tt_capture_set_bounds(tt_capture *c, int count, const int64_t *bounds);
/* The number that stands for the size of symbol `index`; how many of them there can be; and the number when they have these sizes. */
int64_t tt_capture_symbol(int index);
enum { TT_CAPTURE_MOST_SYMBOLS = 8 };
int64_t tt_capture_size(int64_t number, int count, const int64_t *sizes);
bool tt_capture_is_symbolic(int64_t number); /* Is there a symbol in it? */
/* As tt_capture_input, for an array of other dims, some of them symbolic. */
tt_status tt_capture_input_sized(tt_capture *c, tt_storage *like, int rank, const int64_t *dims,
                                 tt_storage **out_placeholder) TT_MUST_USE;
/* What the following calls belong to, as compilers will say it: "forward layers.3". Must live as long as the graph; null: nothing. */
void tt_capture_label(tt_capture *c, const char *label);
/* Stops recording until the matching resume: what runs between them runs as ever. */
void tt_capture_pause(tt_capture *c);
void tt_capture_resume(tt_capture *c);
/* From here on calls are lowered for any plugin: for modules that are printed and not run here. */
void tt_capture_set_portable(tt_capture *c);
/* This thread's capture, or null. */
tt_capture *tt_capture_current(void);
/* The state that a random call gets: which draw of the graph it is. */
tt_rng tt_capture_draw(tt_capture *c);
/* How many there were until now. */
int tt_capture_draws(const tt_capture *c);
/* Which one comes next. An earlier one can be set, which is then drawn again, as by a generator whose state is put back. */
int tt_capture_next_draw(const tt_capture *c);
void tt_capture_set_next_draw(tt_capture *c, int draw);
/* Ends it. Results: storages that placeholders' owners or calls hold; what was written to placeholders is found by itself.
 * `name` goes into the module. On failure too the capture is gone, and whatever it made can no longer be used. */
tt_status tt_capture_end(tt_capture *c, const char *name, int result_count, tt_storage *const *results,
                         tt_graph **out_graph) TT_MUST_USE;
void tt_capture_abort(tt_capture *c);

/* ---- branches and loops: calls between these become parts of one program, however often they run ------------------------
 *
 * What is given must be whole arrays (tt_whole_op makes them). What a part makes can be used in it alone, and only what a part
 * made can be written in it: else calls fail. So does checking indices in a loop's condition, and drawing random numbers, but
 * in loops of known length, each of whose steps draws its own. */

/* A branch: if(predicate), calls, else(results), calls, close(results). */
tt_status tt_capture_if(tt_capture *c, tt_storage *predicate) TT_MUST_USE;
tt_status tt_capture_else(tt_capture *c, int count, tt_storage *const *results) TT_MUST_USE;
/* A loop: while(what is carried), calls, do(is there another iteration?), calls, close(what is carried on). out_carried: what
 * an iteration and the condition see, owned by the caller. */
tt_status tt_capture_while(tt_capture *c, int count, tt_storage *const *carried, tt_storage **out_carried) TT_MUST_USE;
tt_status tt_capture_do(tt_capture *c, tt_storage *goes_on) TT_MUST_USE;
/* A loop of so many steps: the first `carried` of the inputs are carried, of the others step i sees part i along dimension 0.
 * Close gets what is carried on and then any number of parts, and gives what is carried in the end and arrays of all parts. */
tt_status tt_capture_for(tt_capture *c, int64_t steps, int carried, int count, tt_storage *const *inputs,
                         tt_storage **out_seen) TT_MUST_USE;
/* Ends the innermost one: as many results as were given, owned by the caller. */
tt_status tt_capture_close(tt_capture *c, int count, tt_storage *const *results, tt_storage **out_results) TT_MUST_USE;
/* Takes the innermost one back, as if it had not begun; does nothing if there is none. */
void tt_capture_drop(tt_capture *c);
/* How many are open. */
int tt_capture_depth(const tt_capture *c);

/* Begins to compile on one of the compiler's threads. */
void tt_graph_begin(tt_graph *g);
/* Compiles on this thread, or waits for whoever does. */
tt_status tt_graph_require(tt_graph *g) TT_MUST_USE;
bool tt_graph_is_ready(const tt_graph *g);
/* The StableHLO module; empty if the graph has nothing to run. */
tt_status tt_graph_print(const tt_graph *g, tt_strbuf *out) TT_MUST_USE;

/* The module as it is without this process: main takes the graph's inputs and gives its results, and numbers and arrays that
 * the graph refers to are constants. Not for graphs that draw random numbers or write to inputs. Checks of indices are left out. */
tt_status tt_graph_print_closed(const tt_graph *g, const char *name, tt_strbuf *out) TT_MUST_USE;

typedef struct tt_graph_info {
  int inputs, results, calls, draws; /* draws: how far a run moves the random generator */
  int written, donated;              /* inputs that a run writes; those whose memory it may take for that */
  double cost;
} tt_graph_info;
tt_graph_info tt_graph_describe(const tt_graph *g);
/* The program's parameters are arrays, then one pack of numbers for each class that it needs. Which input its k-th array is;
 * -1: an array that is no input, and that the graph keeps. */
int tt_graph_array_count(const tt_graph *g);
int tt_graph_array_source(const tt_graph *g, int k);
/* The program's result that result r of the graph is; -1: it is none of them (an input, or nothing). */
int tt_graph_result_output(const tt_graph *g, int r);
/* Does a run write to this input? */
bool tt_graph_writes(const tt_graph *g, int input);

/* What a run needs beside its storages. */
typedef struct tt_graph_args {
  tt_storage *const *inputs;
  const tt_number *numbers; /* those that calls referred to by tt_number.input */
  tt_rng rng;               /* the state of the first draw; the caller has moved the generator by `draws` */
  const int64_t *sizes;     /* of the symbols, at most their bounds */
} tt_graph_args;

/* Runs. *out_fits false: some input holds another type of array than at the capture, and nothing has happened. out_results
 * has room for every result: storages that the caller owns. On failure nothing has changed and nothing is owned. */
tt_status tt_graph_run(tt_graph *g, const tt_graph_args *args, tt_storage **out_results, bool *out_fits) TT_MUST_USE;
/* May be called while its last run is queued. */
void tt_graph_destroy(tt_graph *g);

#ifdef __cplusplus
}
#endif
#endif
