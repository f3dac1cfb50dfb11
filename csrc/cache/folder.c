/* A folder of entries: reading, writing, locks, the size bound.
 *
 * Everything goes by whole files: written beside their place and renamed into it, read in one go. There is no index that
 * could be wrong, and nothing is mapped, so that network file systems serve as well. Nothing is synced to the disk: what a
 * power cut tears does not check, and a compilation is all that it costs. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/strbuf.h"
#include "cache/internal.h"

#define SECOND 1000000000ll
enum { LOCKS_UNOPENED = -1, LOCKS_NONE = -2 };
static const int64_t touch_ns = 3600 * SECOND; /* an entry's time is brought up to date when it is older */
static const int64_t stale_ns = 3600 * SECOND; /* temporary files older than this have lost their writer */
static const int64_t longest_file = (int64_t)4 << 30;
static const char lock_file[] = "lock", temporary_prefix[] = ".tmp-";

static int64_t stat_time(const struct stat *info) { return info->st_mtim.tv_sec * SECOND + info->st_mtim.tv_nsec; }

static char *path_join(const char *root, const char *file) {
  char *path = tt_malloc(strlen(root) + strlen(file) + 2);
  sprintf(path, "%s/%s", root, file);
  return path;
}

static void folder_warn(tt_folder *f, const char *what, int error) {
  if (atomic_exchange(&f->warned, true)) return;
  fprintf(stderr, "torch_tpu: the compile cache %s %s: %s\n", f->root, what, strerror(error));
}

/* mkdir -p */
static int make_folders(const char *root, mode_t mode) {
  char *path = strcpy(tt_malloc(strlen(root) + 1), root);
  int error = 0;
  for (char *slash = path + 1; !error; slash++) {
    char end = *slash;
    if (end && end != '/') continue;
    *slash = 0;
    if (mkdir(path, mode) && errno != EEXIST && access(path, F_OK)) error = errno;
    *slash = end;
    if (!end) break;
  }
  free(path);
  return error;
}

bool tt_folder_open(tt_folder *f, char *root, int64_t limit, bool mine) {
  f->root = root;
  f->limit = limit;
  atomic_init(&f->lock_fd, LOCKS_UNOPENED);
  atomic_init(&f->warned, false);
  atomic_init(&f->estimate, 0);
  atomic_init(&f->unseen, 0);
  atomic_init(&f->next_scan, 0);
  f->mode = mine ? 0700 : 0777;
  int error = make_folders(root, f->mode);
  struct stat info;
  if (!error && lstat(root, &info)) error = errno;
  if (!error && mine && (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 022))) error = EPERM;
  if (!error && access(root, R_OK | X_OK)) error = errno;
  if (error) folder_warn(f, "can't be used", error);
  return !error;
}

void tt_folder_close(tt_folder *f) {
  int fd = atomic_exchange(&f->lock_fd, LOCKS_NONE);
  if (fd >= 0) close(fd);
}

/* ---- locks ------------------------------------------------------------------------------------------------------ */

/* One file serves all keys: each locks a byte of its own, far beyond the file's end. */
static tt_lock_state lock_byte(tt_folder *f, off_t byte, short type) {
  int fd = atomic_load(&f->lock_fd);
  if (fd == LOCKS_UNOPENED) {
    char *path = path_join(f->root, lock_file);
    int opened = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    free(path);
    if (opened < 0) opened = LOCKS_NONE;
    if (atomic_compare_exchange_strong(&f->lock_fd, &fd, opened)) fd = opened;
    else if (opened >= 0) close(opened); /* another thread was first */
  }
  if (fd < 0) return TT_LOCK_NONE;
  struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
  if (!fcntl(fd, F_OFD_SETLK, &lock)) return TT_LOCK_HELD;
  if (errno == EAGAIN || errno == EACCES || errno == EINTR) return TT_LOCK_BUSY;
  return TT_LOCK_NONE;
}

static off_t lock_place(const tt_cache_key *key) { return (off_t)((key->words[0] ^ key->words[2]) >> 2 | 1); }

tt_lock_state tt_folder_try_lock(tt_folder *f, const tt_cache_key *key) { return lock_byte(f, lock_place(key), F_WRLCK); }
void tt_folder_unlock(tt_folder *f, const tt_cache_key *key) { lock_byte(f, lock_place(key), F_UNLCK); }

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static bool read_all(int fd, uint8_t *data, size_t size) {
  for (size_t have = 0; have < size;) {
    ssize_t got = read(fd, data + have, size - have);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    have += (size_t)got;
  }
  return true;
}

bool tt_folder_read(tt_folder *f, const char *file, uint8_t **out_data, size_t *out_size) {
  char *path = path_join(f->root, file);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* NONBLOCK: somebody may have put a pipe there */
  free(path);
  if (fd < 0) return false;
  struct stat info;
  uint8_t *data = NULL;
  bool ok = !fstat(fd, &info) && S_ISREG(info.st_mode) && info.st_size < longest_file;
  if (ok) ok = (data = malloc((size_t)info.st_size + 1)) && read_all(fd, data, (size_t)info.st_size);
  if (ok && tt_cache_today() - stat_time(&info) > touch_ns) (void)!futimens(fd, NULL); /* others' files stay as they are */
  close(fd);
  if (!ok) free(data);
  else *out_data = data, *out_size = (size_t)info.st_size;
  return ok;
}

void tt_folder_remove(tt_folder *f, const char *file) {
  char *path = path_join(f->root, file);
  unlink(path);
  free(path);
}

/* ---- listing and evicting --------------------------------------------------------------------------------------- */

tt_status tt_folder_list(const char *root, int64_t stale, tt_folder_file **out_files, size_t *out_count) {
  *out_files = NULL;
  *out_count = 0;
  DIR *dir = opendir(root);
  if (!dir) return tt_status_make(TT_UNAVAILABLE, "the compile cache %s can't be read: %s", root, strerror(errno));
  size_t count = 0, room = 0;
  tt_folder_file *files = NULL;
  for (const struct dirent *d; (d = readdir(dir));) {
    tt_cache_key key;
    struct stat info;
    bool temporary = !strncmp(d->d_name, temporary_prefix, strlen(temporary_prefix));
    if (!temporary && !tt_entry_file_key(d->d_name, &key)) continue; /* not ours */
    if (fstatat(dirfd(dir), d->d_name, &info, AT_SYMLINK_NOFOLLOW)) continue; /* gone */
    if (temporary) {
      if (stale >= 0 && tt_cache_today() - stat_time(&info) > stale) unlinkat(dirfd(dir), d->d_name, 0);
      continue;
    }
    if (count == room) files = tt_realloc(files, (room = 2 * room + 64) * sizeof *files);
    files[count] = (tt_folder_file){.size = info.st_size, .used_ns = stat_time(&info)};
    strcpy(files[count++].name, d->d_name);
  }
  closedir(dir);
  *out_files = files;
  *out_count = count;
  return TT_OK;
}

static int older_first(const void *a, const void *b) {
  const tt_folder_file *x = a, *y = b;
  return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

typedef struct eviction {
  int64_t limit, target;                    /* more than limit bytes: the least recently used go until target is reached */
  int64_t unused_ns;                        /* and all that were not used for so long; < 0: any age is fine */
  int64_t found_bytes, kept_bytes, removed; /* answers */
} eviction;

static tt_status evict(const char *root, eviction *e) {
  tt_folder_file *files;
  size_t count;
  TT_TRY(tt_folder_list(root, stale_ns, &files, &count));
  if (count) qsort(files, count, sizeof *files, older_first);
  for (size_t i = 0; i < count; i++) e->found_bytes += files[i].size;
  e->kept_bytes = e->found_bytes;
  bool too_much = e->kept_bytes > e->limit;
  int64_t now = tt_cache_today();
  for (size_t i = 0; i < count; i++) {
    bool too_old = e->unused_ns >= 0 && now - files[i].used_ns > e->unused_ns;
    if (!too_old && !(too_much && e->kept_bytes > e->target)) break; /* those that follow are younger */
    char *path = path_join(root, files[i].name);
    e->removed += !unlink(path);
    e->kept_bytes -= files[i].size;
    free(path);
  }
  free(files);
  return TT_OK;
}

tt_status tt_cache_prune(const char *root, int64_t limit, int64_t unused_ns, int64_t *out_removed, int64_t *out_bytes) {
  eviction e = {.limit = limit < 0 ? INT64_MAX : limit, .target = limit, .unused_ns = unused_ns};
  tt_status status = evict(root, &e);
  *out_removed = e.removed;
  *out_bytes = e.found_bytes - e.kept_bytes;
  return status;
}

tt_status tt_cache_remove(const char *root, const char *file) {
  tt_cache_key key;
  if (!tt_entry_file_key(file, &key)) return tt_status_make(TT_VALUE_ERROR, "'%s' is not an entry of a compile cache", file);
  char *path = path_join(root, file);
  int error = unlink(path) && errno != ENOENT ? errno : 0;
  free(path);
  if (!error) return TT_OK;
  return tt_status_make(TT_UNAVAILABLE, "%s in the compile cache %s can't be removed: %s", file, root, strerror(error));
}

/* Looks at the folder and evicts. Only one process does it at a time (byte 0 is its lock), and a look may take a hundredth
 * of the time at most. Gives how many entries were removed. */
static int64_t make_room(tt_folder *f, int64_t limit, int64_t target) {
  int64_t start = tt_cache_now();
  tt_lock_state lock = lock_byte(f, 0, F_WRLCK);
  if (lock == TT_LOCK_BUSY) return 0;
  eviction e = {.limit = limit, .target = target, .unused_ns = -1};
  tt_status_free(evict(f->root, &e));
  if (lock == TT_LOCK_HELD) lock_byte(f, 0, F_UNLCK);
  int64_t end = tt_cache_now();
  atomic_store(&f->estimate, e.kept_bytes);
  atomic_store(&f->next_scan, end + 100 * (end - start));
  return e.removed;
}

/* Counts what was written, and evicts when that may have passed the bound. Others write too, so the count is only a
 * guess: the first write and every sixteenth of the bound look again. */
static int64_t keep_bound(tt_folder *f, size_t written) {
  if (!f->limit) return 0;
  int64_t guess = atomic_fetch_add(&f->estimate, (int64_t)written) + (int64_t)written;
  int64_t unseen = atomic_fetch_add(&f->unseen, (int64_t)written) + (int64_t)written;
  bool look = unseen == (int64_t)written || unseen > f->limit / 16 || guess > f->limit;
  if (!look || tt_cache_now() < atomic_load(&f->next_scan)) return 0;
  atomic_store(&f->unseen, 1);
  return make_room(f, f->limit, f->limit / 8 * 7);
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

static int write_all(int fd, const uint8_t *data, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t put = write(fd, data + done, size - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    done += (size_t)put;
  }
  return 0;
}

/* Gives the error, or 0. */
static int write_file(const tt_folder *f, const char *file, const uint8_t *data, size_t size) {
  unsigned long long random = (unsigned long long)tt_cache_now() ^ (unsigned long long)getpid() << 40;
  (void)!getrandom(&random, sizeof random, GRND_NONBLOCK);
  tt_strbuf temporary = TT_STRBUF_INIT;
  tt_strbuf_printf(&temporary, "%s/%s%016llx", f->root, temporary_prefix, random);
  int fd = open(temporary.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  int error = fd < 0 ? errno : write_all(fd, data, size);
  if (fd >= 0 && close(fd) && !error) error = errno; /* network file systems tell only here */
  char *path = path_join(f->root, file);
  if (!error && rename(temporary.data, path)) error = errno;
  if (error && fd >= 0) unlink(temporary.data);
  free(path);
  tt_strbuf_free(&temporary);
  return error;
}

bool tt_folder_write(tt_folder *f, const char *file, const uint8_t *data, size_t size, int64_t *out_evicted) {
  *out_evicted = 0;
  if (f->limit && (int64_t)size > f->limit) return false;
  int error = write_file(f, file, data, size);
  if (error == ENOENT && !make_folders(f->root, f->mode)) error = write_file(f, file, data, size); /* somebody removed it */
  if (error == ENOSPC || error == EDQUOT) { /* one more try, with half of what is there gone */
    eviction e = {.limit = INT64_MAX, .unused_ns = -1};
    tt_status_free(evict(f->root, &e));
    *out_evicted = make_room(f, 0, e.found_bytes / 2);
    error = write_file(f, file, data, size);
  }
  if (error) {
    folder_warn(f, "can't be written, so new programs are not kept", error);
    return false;
  }
  *out_evicted += keep_bound(f, size);
  return true;
}
