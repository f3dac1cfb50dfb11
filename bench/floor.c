/* What PJRT itself costs: the small workloads of bench/spec.py from plain C, with nothing of tt_dispatch around them.
 *
 *   floor PLUGIN.so                               runs each once, prints its time and checks its result
 *   floor PLUGIN.so WORKLOAD ANSWERS SECONDS      serves run.py as bench/worker.py does
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pjrt/pjrt.h"

enum { WIDTH = 8, MANY = 1000, FEW = 300, PAGE = 1024, WARM_UP = 5 };

static tt_client *client;
static tt_executable *add_one, *add_one_page, *add_one_scalar;
static tt_pjrt_buffer *ramp, *scalar, *page, *kept[MANY];
static float page_data[PAGE], page_back[PAGE];

static void must(tt_status status) {
  if (!status) return;
  fprintf(stderr, "floor: %s: %s\n", tt_status_code_name(tt_status_get_code(status)), tt_status_message(status));
  exit(1);
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static tt_executable *compile_add_one(const char *type) {
  char text[512];
  tt_executable *e;
  snprintf(text, sizeof text,
           "module { func.func public @main(%%x: tensor<%sf32>) -> tensor<%sf32> {\n"
           "  %%one = stablehlo.constant dense<1.0> : tensor<%sf32>\n"
           "  %%y = stablehlo.add %%x, %%one : tensor<%sf32>\n  return %%y : tensor<%sf32> } }\n",
           type, type, type, type, type);
  must(tt_executable_compile(client, text, strlen(text), NULL, &e));
  return e;
}

static tt_pjrt_buffer *upload(int rank, int64_t count, const float *values) {
  tt_pjrt_buffer *b;
  must(tt_buffer_from_host(client, 0, TT_F32, rank, &count, values, &b));
  return b;
}

static tt_pjrt_buffer *execute(tt_executable *e, tt_pjrt_buffer *x) {
  tt_pjrt_buffer *y;
  must(tt_executable_execute(e, 0, 1, &x, NULL, &y));
  return y;
}

/* ---- workloads: each does `count` units, waits for the last, and leaves its result in `out` ------------------------ */

static void read_into(tt_pjrt_buffer *b, float *out, size_t count) {
  const void *data;
  must(tt_buffer_await(client, b));
  must(tt_buffer_host_pointer(client, b, &data));
  memcpy(out, data, count * sizeof *out);
}

static void let_go(int count) {
  for (int i = 0; i < count; i++) tt_buffer_destroy(client, kept[i]), kept[i] = NULL;
}

/* As in Python, results live until the next round's take their place. */
static void keep(int i, tt_pjrt_buffer *b) {
  tt_buffer_destroy(client, kept[i]);
  kept[i] = b;
}

static void dispatch_add(float *out) {
  for (int i = 0; i < MANY; i++) keep(i, execute(add_one, ramp));
  read_into(kept[MANY - 1], out, WIDTH);
}

static void add_repeatedly(tt_executable *e, tt_pjrt_buffer *x, float *out, size_t width) {
  tt_pjrt_buffer *y = execute(e, x);
  for (int i = 1; i < MANY; i++) {
    tt_pjrt_buffer *next = execute(e, y);
    tt_buffer_destroy(client, y);
    y = next;
  }
  read_into(y, out, width);
  tt_buffer_destroy(client, y);
}

static void dispatch_dep(float *out) { add_repeatedly(add_one, ramp, out, WIDTH); }
static void dispatch_dep_1k(float *out) { add_repeatedly(add_one_page, page, out, PAGE); }

static void dispatch_wait(float *out) {
  for (int i = 0; i < FEW; i++) {
    keep(0, execute(add_one, ramp));
    must(tt_buffer_await(client, kept[0]));
  }
  read_into(kept[0], out, WIDTH);
}

static void item(float *out) {
  for (int i = 0; i < FEW; i++) {
    tt_pjrt_buffer *y = execute(add_one_scalar, scalar);
    read_into(y, out, 1);
    tt_buffer_destroy(client, y);
  }
}

static void h2d_4k(float *out) {
  for (int i = 0; i < FEW; i++) keep(i, upload(1, PAGE, page_data));
  read_into(kept[FEW - 1], out, PAGE);
}

static void d2h_4k(float *out) {
  for (int i = 0; i < FEW; i++) read_into(page, page_back, PAGE);
  memcpy(out, page_back, sizeof page_back);
}

static const struct workload {
  const char *name;
  void (*run)(float *out);
  int count, width;
  float first; /* what out[0] must be */
} workloads[] = {
    {"dispatch_add", dispatch_add, MANY, WIDTH, 1},
    {"dispatch_dep", dispatch_dep, MANY, WIDTH, MANY},
    {"dispatch_dep_1k", dispatch_dep_1k, MANY, PAGE, MANY},
    {"dispatch_wait", dispatch_wait, FEW, WIDTH, 1},
    {"item", item, FEW, 1, 1},
    {"h2d_4k", h2d_4k, FEW, PAGE, 0},
    {"d2h_4k", d2h_4k, FEW, PAGE, 0},
};
enum { WORKLOADS = sizeof workloads / sizeof *workloads };

static double sample(const struct workload *w, int repeats, float *out) {
  double start = seconds();
  for (int i = 0; i < repeats; i++) w->run(out);
  return (seconds() - start) / repeats;
}

/* Some of the result and, of more than a number, the mean of its size, as worker.py's digest takes them. */
static void print_check(FILE *answers, const struct workload *w, const float *out) {
  int stride = w->width < 2 * 61 ? 1 : w->width / 61, shown = 0;
  double sum = 0;
  fputs("{\"check\": [", answers);
  for (int i = 0; i < w->width && shown < 64; i += stride, shown++) fprintf(answers, "%s%.9g", i ? ", " : "", (double)out[i]);
  for (int i = 0; i < w->width; i++) sum += fabs((double)out[i]);
  if (w->width > 1) fprintf(answers, ", %.9g", sum / w->width);
  fputs("], ", answers);
}

static int serve(const char *name, int descriptor, double target) {
  static float out[PAGE];
  const struct workload *w = workloads;
  while (w < workloads + WORKLOADS && strcmp(w->name, name)) w++;
  FILE *answers = fdopen(descriptor, "w");
  if (w == workloads + WORKLOADS || !answers) {
    fprintf(stderr, "floor: there is no workload %s, or no descriptor %d\n", name, descriptor);
    return 1;
  }
  double one = sample(w, WARM_UP, out);
  int repeats = (int)(target / one);
  if (repeats < 1) repeats = 1;
  print_check(answers, w, out);
  fprintf(answers, "\"repeats\": %d}\n", repeats);
  fflush(answers);
  for (int c; (c = getchar()) != EOF;) {
    if (c != 's') continue;
    fprintf(answers, "{\"seconds\": %.9g}\n", sample(w, repeats, out) / w->count);
    fflush(answers);
  }
  fputs("{}\n", answers);
  return fclose(answers) != 0;
}

static int run_all(void) {
  static float out[PAGE];
  int wrong = 0;
  for (const struct workload *w = workloads; w < workloads + WORKLOADS; w++) {
    double time = sample(w, WARM_UP, out) / w->count;
    bool right = out[0] == w->first;
    printf("%-16s %8.3f us%s\n", w->name, time * 1e6, right ? "" : "  WRONG");
    wrong += !right;
  }
  return wrong != 0;
}

int main(int argc, char **argv) {
  if (argc != 2 && argc != 5) {
    fprintf(stderr, "usage: floor PLUGIN.so [WORKLOAD ANSWERS SECONDS]\n");
    return 2;
  }
  tt_plugin *plugin;
  must(tt_plugin_load(argv[1], &plugin));
  must(tt_client_create(plugin, &client));
  add_one = compile_add_one("8x");
  add_one_page = compile_add_one("1024x");
  add_one_scalar = compile_add_one("");
  for (int i = 0; i < PAGE; i++) page_data[i] = (float)i / 8;
  ramp = upload(1, WIDTH, page_data);
  scalar = upload(0, 0, page_data);
  page = upload(1, PAGE, page_data);
  int status = argc == 2 ? run_all() : serve(argv[2], atoi(argv[3]), atof(argv[4]));
  let_go(MANY);
  tt_pjrt_buffer *inputs[] = {ramp, scalar, page};
  for (int i = 0; i < 3; i++) tt_buffer_destroy(client, inputs[i]);
  tt_executable_destroy(add_one);
  tt_executable_destroy(add_one_page);
  tt_executable_destroy(add_one_scalar);
  tt_client_destroy(client);
  return status;
}
