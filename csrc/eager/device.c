/* The device: plugin, client, stream and plans of one process, opened at first use. */
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "eager/graph_internal.h"
#include "kernels/kernels.h"

/* About 50 us of work on one core: below, a thread switch costs more than it hides. With one core it hides nothing. */
enum { DEFAULT_INLINE_COST = 200000 };

int tt_usable_cores(void) {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) ? 1 : CPU_COUNT(&cores);
}

static char *copy_text(const char *text) { return text && *text ? strcpy(tt_malloc(strlen(text) + 1), text) : NULL; }

/* The plugin's options: ours first, so that the user's win. XLA:CPU's fast min and max lose NaN, PyTorch's keep it. It cuts
 * a program's code in 32 parts to compile them at once; more parts than there are cores cost a fifth and gain nothing. */
static char *compile_options_text(bool is_cpu, bool quick, const char *user) {
  tt_strbuf s = TT_STRBUF_INIT;
  if (is_cpu)
    tt_strbuf_printf(&s, "xla_cpu_enable_fast_min_max=false xla_cpu_parallel_codegen_split_count=%d ",
                     tt_usable_cores() < 32 ? tt_usable_cores() : 32);
  if (is_cpu && quick) tt_strbuf_add(&s, "xla_backend_optimization_level=0 ");
  if (user) tt_strbuf_add(&s, user);
  return s.data;
}

/* What only the environment can tell XLA:CPU, which reads it when the client is made: the older emitters, without
 * unrolling and SLP vectorisation, gave the same bits as fast wherever they were compared, and compile in half the time. The user's own flags
 * come later and win. */
static const char compile_fast[] =
    "--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters,xla_cpu_disable_loop_unrolling,"
    "xla_cpu_disable_slp_vectorizer";

static tt_status client_create(tt_plugin *plugin, tt_client **out_client) {
  char *users = copy_text(getenv("XLA_FLAGS"));
  tt_strbuf flags = TT_STRBUF_INIT;
  tt_strbuf_printf(&flags, "%s %s", compile_fast, users ? users : "");
  setenv("XLA_FLAGS", flags.data, 1);
  tt_status status = tt_client_create(plugin, out_client);
  if (users) setenv("XLA_FLAGS", users, 1);
  else unsetenv("XLA_FLAGS");
  tt_strbuf_free(&flags);
  free(users);
  return status;
}

/* A plugin that refuses our kernels is used without them. So is a process without LAPACK without those over it: its programs
 * are other texts, so it never takes one from the cache that calls them. */
static tt_target choose_target(const tt_device *d) {
  if (!d->is_cpu || d->options.tpu_forms) return TT_TARGET_TPU;
  tt_target emulate = d->options.emulate_mxu ? TT_TARGET_EMULATE_MXU : 0;
  if (d->options.no_kernels) return TT_TARGET_CPU | emulate;
  tt_status refused = tt_plugin_register(d->plugin, TT_KERNEL_COUNT, tt_kernels);
  tt_status_free(refused);
  if (refused) return TT_TARGET_CPU | emulate;
  return (tt_lapack_load(d->options.lapack) ? TT_TARGET_CPU_LAPACK : TT_TARGET_CPU_KERNELS) | emulate;
}

tt_status tt_device_open(const tt_device_options *options, tt_device **out_device) {
  *out_device = NULL;
  tt_plugin *plugin = NULL;
  tt_client *client = NULL;
  if (!options->abstract) TT_TRY(tt_plugin_load(options->plugin_path, &plugin));
  if (!options->abstract) TT_TRY(client_create(plugin, &client));
  tt_device *d = tt_calloc(1, sizeof *d);
  d->options = *options;
  d->plugin_path = copy_text(options->plugin_path);
  d->dump_dir = copy_text(options->dump_dir);
  d->rehearse_dir = copy_text(options->rehearse_dir);
  if (d->options.inline_cost <= 0) d->options.inline_cost = tt_usable_cores() > 1 ? DEFAULT_INLINE_COST : INFINITY;
  d->plugin = plugin;
  d->client = client;
  d->cache = tt_cache_create(client, &options->cache);
  d->is_cpu = client && tt_client_is_cpu(client);
  d->target = choose_target(d);
  tt_programs_limit(d);
  d->xla_options = compile_options_text(d->is_cpu, false, options->xla_options);
  d->quick_options = compile_options_text(d->is_cpu, true, options->xla_options);
  atomic_init(&d->launch_blocking, options->launch_blocking);
  pthread_mutex_init(&d->check_lock, NULL);
  tt_memory_init(d);
  atomic_init(&d->defer, options->defer);
  d->region.serial = 1;
  tt_stream_init(d);
  tt_compiler_init(d);
  pthread_mutex_init(&d->family_lock, NULL);
  *out_device = d;
  return TT_OK;
}

void tt_device_close(tt_device *d) {
  if (!d || !tt_device_is_live(d)) return; /* a forked child can stop neither thread nor plugin */
  tt_region_discard(&d->region);
  tt_stream_stop(d);
  tt_compiler_stop(d);
  tt_checks_drain(d);
  tt_graph_sweep(d, true);
  tt_status_free(tt_device_take_unseen(d, false));
  for (int i = 0; i < TT_NUMBER_CACHE; i++) tt_value_release(d->number_cache[i].value);
  for (size_t i = 0; i < d->plans.capacity; i++) tt_plan_free(d->plans.slots[i]);
  free(d->plans.slots);
  tt_region_table_clear(d);
  tt_families_clear(d);
  tt_arena_free(&d->marks);
  pthread_mutex_destroy(&d->family_lock);
  free(d->key.words);
  free(d->key.storages);
  tt_pool_drop(&d->values);
  tt_pool_drop(&d->storages);
  tt_cache_destroy(d->cache);
  if (d->client) tt_client_destroy(d->client);
  pthread_mutex_destroy(&d->check_lock);
  pthread_mutex_destroy(&d->arrays_lock);
  free(d->plugin_path);
  free(d->xla_options);
  free(d->quick_options);
  free(d->dump_dir);
  free(d->rehearse_dir);
  free(d);
}

void tt_device_enter(tt_device *d) {
  for (int spins = 0; atomic_flag_test_and_set_explicit(&d->dispatching, memory_order_acquire); spins++) {
    if (spins <= 100) continue;
    if (!tt_device_is_live(d)) return; /* whoever held it is not in this process */
    sched_yield();
  }
}

void tt_device_end(tt_device *d) {
  if (!tt_device_is_live(d)) return;
  tt_status_free(tt_device_synchronize(d));
  tt_device_enter(d); /* nobody is amid a call */
  atomic_store(&d->state, TT_DEVICE_ENDED);
  tt_device_leave(d);
  tt_stream_stop(d);
  tt_compiler_stop(d);
  if (d->client) tt_client_stop(d->client); /* an abstract device has none */
}

void tt_device_mark_forked(tt_device *d) {
  atomic_store(&d->state, TT_DEVICE_FORKED);
  tt_cache_mark_forked(d->cache);
}

tt_status tt_device_usable(tt_device *d) {
  tt_device_state state = (tt_device_state)atomic_load_explicit(&d->state, memory_order_relaxed);
  if (state == TT_DEVICE_LIVE) return TT_OK;
  if (state == TT_DEVICE_ENDED)
    return tt_status_make(TT_UNAVAILABLE, "The device tpu can't be used any more: the process is about to exit.");
  return tt_status_make(TT_UNAVAILABLE, "Cannot re-initialize TPU in forked subprocess. To use TPU with multiprocessing, "
                                        "you must use the 'spawn' start method");
}

tt_status tt_device_is_abstract(const char *what) {
  return tt_status_make(TT_UNAVAILABLE, "%s: this device is abstract. It describes programs for a TPU that isn't there: "
                                        "nothing on it has contents, and nothing runs outside of a captured graph", what);
}

void *tt_device_wait_begin(tt_device *d) { return d->options.hooks.wait_begin ? d->options.hooks.wait_begin() : NULL; }
void tt_device_wait_end(tt_device *d, void *token) {
  if (d->options.hooks.wait_end) d->options.hooks.wait_end(token);
}

tt_status tt_device_synchronize(tt_device *d) {
  TT_TRY(tt_device_usable(d));
  TT_TRY(tt_device_flush(d, TT_FLUSH_SYNCHRONIZE));
  TT_TRY(tt_stream_drain(d));
  tt_checks_drain(d);
  return tt_device_take_unseen(d, false);
}

void tt_device_set_launch_blocking(tt_device *d, bool on) { atomic_store(&d->launch_blocking, on); }
bool tt_device_launch_blocking(const tt_device *d) { return atomic_load(&d->launch_blocking); }

bool tt_device_defer(const tt_device *d) { return atomic_load(&d->defer); }

tt_status tt_device_set_defer(tt_device *d, bool on) {
  atomic_store(&d->defer, on);
  return on ? TT_OK : tt_device_flush(d, TT_FLUSH_MODE);
}

bool tt_device_excess_precision(const tt_device *d) { return atomic_load(&d->excess_precision); }

tt_status tt_device_set_excess_precision(tt_device *d, bool on) {
  TT_TRY(tt_device_flush(d, TT_FLUSH_MODE));
  atomic_store(&d->excess_precision, on);
  return TT_OK;
}

tt_device_info tt_device_describe(const tt_device *d) {
  if (!d->client)
    return (tt_device_info){.plugin_path = "", .platform = "tpu", .platform_version = "", .device_kind = "abstract", .is_abstract = true};
  tt_device_info info = {
      .plugin_path = d->plugin_path,
      .platform = tt_client_platform(d->client),
      .platform_version = tt_client_platform_version(d->client),
      .device_kind = tt_client_device_kind(d->client, 0),
      .is_cpu = d->is_cpu,
      .has_kernels = tt_target_has_kernels(d->target),
      .has_lapack = tt_target_has_lapack(d->target),
      .emulates_mxu = d->target & TT_TARGET_EMULATE_MXU,
  };
  tt_plugin_version(d->plugin, &info.api_major, &info.api_minor);
  return info;
}

const tt_cache *tt_device_cache(const tt_device *d) { return d->cache; }

tt_cache_stats tt_device_cache_stats(const tt_device *d) {
  tt_cache_totals total = tt_cache_total(d->cache);
  return (tt_cache_stats){
      .requests = atomic_load(&d->requests),
      .hits = atomic_load(&d->hits),
      .compilations = total.compilations,
      .inlined = atomic_load(&d->inlined),
      .queued = atomic_load(&d->queued),
      .donated = atomic_load(&d->donated),
      .loaded = d->client ? tt_client_loaded_count(d->client) : 0,
      .unloaded = atomic_load(&d->unloaded),
      .compile_seconds = (double)total.compile_ns * 1e-9,
  };
}
