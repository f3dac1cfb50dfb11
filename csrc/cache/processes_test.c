/* Several processes on one folder. Each is this program again, which runs the test `worker` with orders in TT_WORKER. */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>

#include "cache/cache_fixture.h"

extern char **environ;

enum { PROCESSES = 8, PROGRAMS = 12 };

/* How often the expensive things are done: TT_CACHE_KILLS=200 for a thorough run. */
static int kills(void) {
  const char *text = getenv("TT_CACHE_KILLS");
  return text ? atoi(text) : 10;
}

/* TT_WORKER: "tiers folder count": compiles that many programs, tells how many it compiled itself and stored. */
TT_TEST(worker) {
  const char *orders = getenv("TT_WORKER");
  if (!orders) return;
  char folder[256];
  int tiers, count;
  if (sscanf(orders, "%d %255s %d", &tiers, folder, &count) != 3) exit(1);
  tt_client *client = mock_client();
  mock.delay_us(TT_MOCK_COMPILE, 2000);
  char *memory = join(folder, "memory"), *disk = join(folder, "disk");
  tt_cache_options options = {.tier2 = tiers & 1 ? memory : NULL, .tier3 = tiers & 2 ? disk : NULL};
  tt_cache *c = tt_cache_create(client, &options);
  for (int i = 0; i < count; i++) run_program(c, i);
  int which = tiers & 2 ? 3 : 2;
  printf("answer %lld %lld\n", (long long)tt_cache_total(c).compilations, (long long)tt_cache_tier(c, which).stores);
  tt_cache_destroy(c);
  tt_client_destroy(client);
  free(memory), free(disk);
}

static char *test_filter = "worker";

/* Starts a worker whose standard output goes into a file. */
static pid_t worker_start(const char *folder, int tiers, int count, const char *output) {
  char orders[512];
  snprintf(orders, sizeof orders, "%d %s %d", tiers, folder, count);
  setenv("TT_WORKER", orders, 1);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t pid = -1;
  char *arguments[] = {"/proc/self/exe", test_filter, NULL};
  TT_CHECK(!posix_spawn(&pid, "/proc/self/exe", &actions, NULL, arguments, environ));
  posix_spawn_file_actions_destroy(&actions);
  unsetenv("TT_WORKER");
  return pid;
}

static void check_once(int tiers) {
  char *folder = new_folder(), *outputs[PROCESSES];
  pid_t workers[PROCESSES];
  for (int i = 0; i < PROCESSES; i++) {
    char name[16];
    snprintf(name, sizeof name, "out%d", i);
    outputs[i] = join(folder, name);
    workers[i] = worker_start(folder, tiers, PROGRAMS, outputs[i]);
  }
  long long compiled = 0, stored = 0;
  for (int i = 0; i < PROCESSES; i++) {
    int state;
    TT_CHECK(waitpid(workers[i], &state, 0) == workers[i] && WIFEXITED(state) && !WEXITSTATUS(state));
    long long c = -1, s = -1;
    FILE *f = fopen(outputs[i], "r");
    TT_CHECK(f && fscanf(f, "answer %lld %lld", &c, &s) == 2);
    if (f) fclose(f);
    compiled += c;
    stored += s;
    free(outputs[i]);
  }
  TT_CHECK_INT_EQ(compiled, PROGRAMS);
  TT_CHECK_INT_EQ(stored, PROGRAMS);
  drop_folder(folder);
}

TT_TEST(eight_processes_compile_each_program_once_in_tier_3) { check_once(2); }
TT_TEST(eight_processes_compile_each_program_once_in_tier_2) { check_once(1); }
TT_TEST(eight_processes_compile_each_program_once_in_both) { check_once(3); }

/* Two workers at a time, one of which dies: what it leaves is whole, and the other one never waits for the dead. */
TT_TEST(killed_writers_leave_a_whole_cache) {
  char *folder = new_folder(), *disk = join(folder, "disk"), *output = join(folder, "out"), *other = join(folder, "other");
  srand(1);
  for (int i = 0, n = kills(); i < n; i++) {
    pid_t victim = worker_start(folder, 2, 1000, output);
    pid_t witness = i % 5 ? 0 : worker_start(folder, 2, PROGRAMS, other);
    usleep((useconds_t)(rand() % 60000));
    kill(victim, SIGKILL);
    int state;
    waitpid(victim, &state, 0);
    if (witness) TT_CHECK(waitpid(witness, &state, 0) == witness && WIFEXITED(state) && !WEXITSTATUS(state));
    if (access(disk, F_OK)) continue; /* killed before it began */
    found f = look(disk);
    TT_CHECK_INT_EQ(f.bad, 0);
    if (i % 10 == 9) { /* start over, so that there is something to write */
      int64_t removed, bytes;
      TT_CHECK_OK(tt_cache_prune(disk, 0, -1, &removed, &bytes));
      TT_CHECK(removed > 0);
    }
  }
  free(disk), free(output), free(other);
  drop_folder(folder);
}
