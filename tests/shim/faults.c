/* Preloaded into a process (LD_PRELOAD), it makes the n-th operation on chosen files fail, or ends or stops the process
 * there, and it can record every operation that changes a file.
 *
 * A library below Python and not a layer in `myxtts/files.py`: weights are written by Rust and shards by C++, and a
 * fault there must be seen too. Does nothing until it is armed; see `tests/shim/__init__.py`.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum operation { READ, WRITE, SYNC, RENAME, OPEN, REMOVE, MAKE_FOLDER, CUT, OPERATIONS };
enum action { NONE, ERROR, SIGNAL, FULL, CLOCK };

static char under[4 * PATH_MAX], happened[PATH_MAX];
static int armed, recording = -1, for_good;
static unsigned chosen;
static long at, seen, counts[OPERATIONS];
static enum action action;
static long value, clock_offset_s;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int is_chosen(const char *path) {
    if (!armed && recording < 0) return 0;
    for (const char *start = under; *start;) {
        const char *end = strchrnul(start, ':');
        size_t length = end - start;
        if (length && !strncmp(path, start, length)) return 1;
        start = *end ? end + 1 : end;
    }
    return 0;
}

static void path_of(int descriptor, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
}

static void absolute(int folder, const char *name, char *path) {
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
        return;
    }
    char base[PATH_MAX];
    if (folder == AT_FDCWD) {
        if (syscall(SYS_getcwd, base, sizeof base) < 0) base[0] = 0;
    } else {
        path_of(folder, base);
    }
    if (snprintf(path, PATH_MAX, "%s/%s", base, name) >= PATH_MAX) path[0] = 0;
}

/* That the fault has come is told by a file, for the process may not live to tell it. */
static void tell_that_it_happened(void) {
    int told = syscall(SYS_openat, AT_FDCWD, happened, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (told >= 0) syscall(SYS_close, told);
}

/* The error that this operation is to fail with, or 0; with FULL a write takes half of its bytes first. */
static int fault(enum operation operation, const char *path, int *half) {
    if (!armed || !is_chosen(path)) return 0;
    pthread_mutex_lock(&lock);
    counts[operation]++;
    int now = 0, first = 0;
    if (chosen & (1u << operation)) {
        seen++;
        first = seen == at;
        now = first || (for_good && at > 0 && seen > at);
    }
    pthread_mutex_unlock(&lock);
    if (!now) return 0;
    if (first) tell_that_it_happened();
    switch (action) {
    case ERROR:
        return (int)value;
    case FULL:
        if (half && first) *half = 1;
        return (int)value;
    case SIGNAL:
        syscall(SYS_kill, getpid(), (int)value);
        return 0;
    case CLOCK:
        clock_offset_s = value;
        return 0;
    default:
        return 0;
    }
}

static void record(const char *kind, const char *path, const char *other, int64_t offset, const void *data, size_t size) {
    if (recording < 0 || !is_chosen(path)) return;
    char head[2 * PATH_MAX + 96];
    int length = snprintf(head, sizeof head, "%s\t%s\t%s\t%lld\t%zu\n", kind, path, other, (long long)offset, size);
    struct iovec parts[2] = {{head, length}, {(void *)data, size}};
    pthread_mutex_lock(&lock);
    if (syscall(SYS_writev, recording, parts, 2) != (ssize_t)(length + size)) abort();
    pthread_mutex_unlock(&lock);
}

/* With the number of the file itself: some libraries rename past the C library, where nothing sees them. */
static void record_file(const char *kind, const char *path, int descriptor, int64_t offset, const void *data, size_t size) {
    if (recording < 0 || !is_chosen(path)) return;
    struct stat status;
    char number[32] = "";
    if (!fstat(descriptor, &status)) snprintf(number, sizeof number, "%llu", (unsigned long long)status.st_ino);
    record(kind, path, number, offset, data, size);
}

int faults_arm(const char *where, unsigned operations, long number, int what, long with, int always, const char *told) {
    snprintf(under, sizeof under, "%s", where);
    snprintf(happened, sizeof happened, "%s", told);
    chosen = operations, at = number, action = what, value = with, for_good = always;
    seen = 0;
    memset(counts, 0, sizeof counts);
    armed = 1;
    return 0;
}

long faults_count(int operation) { return counts[operation]; }

int faults_record(const char *where, const char *log) {
    snprintf(under, sizeof under, "%s", where);
    recording = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
    return recording;
}

void faults_mark(const char *name) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.*s", (int)(strchrnul(under, ':') - under), under);
    record("mark", path, name, 0, NULL, 0);
}

static int opened(int folder, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    int was_there = 1;
    if (armed || recording >= 0) {
        absolute(folder, name, path);
        if (is_chosen(path)) {
            int error = fault(OPEN, path, NULL);
            if (error) return errno = error, -1;
            was_there = syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0;
        }
    }
    int descriptor = syscall(SYS_openat, folder, name, flags, mode);
    if (descriptor >= 0 && recording >= 0) {
        int saved = errno;
        if (!was_there && flags & O_CREAT) record_file("create", path, descriptor, 0, NULL, 0);
        if (was_there && flags & O_TRUNC && (flags & O_ACCMODE) != O_RDONLY)
            record_file("cut", path, descriptor, 0, NULL, 0);
        errno = saved;
    }
    return descriptor;
}

#define OPENER(name, folder, parameters)                  \
    int name parameters {                                 \
        mode_t mode = 0;                                  \
        if (flags & (O_CREAT | O_TMPFILE)) {              \
            va_list rest;                                 \
            va_start(rest, flags);                        \
            mode = va_arg(rest, mode_t);                  \
            va_end(rest);                                 \
        }                                                 \
        return opened(folder, path, flags, mode);         \
    }
OPENER(open, AT_FDCWD, (const char *path, int flags, ...))
OPENER(open64, AT_FDCWD, (const char *path, int flags, ...))
OPENER(openat, folder, (int folder, const char *path, int flags, ...))
OPENER(openat64, folder, (int folder, const char *path, int flags, ...))

static int fault_of(enum operation operation, int descriptor, char *path, int *half) {
    path[0] = 0;
    if (!armed && recording < 0) return 0;
    path_of(descriptor, path);
    return fault(operation, path, half);
}

ssize_t read(int descriptor, void *buffer, size_t size) {
    char path[PATH_MAX];
    int error = fault_of(READ, descriptor, path, NULL);
    if (error) return errno = error, -1;
    return syscall(SYS_read, descriptor, buffer, size);
}

ssize_t pread64(int descriptor, void *buffer, size_t size, off64_t offset) {
    char path[PATH_MAX];
    int error = fault_of(READ, descriptor, path, NULL);
    if (error) return errno = error, -1;
    return syscall(SYS_pread64, descriptor, buffer, size, offset);
}
ssize_t pread(int descriptor, void *buffer, size_t size, off_t offset) {
    return pread64(descriptor, buffer, size, offset);
}

/* Where the next write of a descriptor goes. */
static int64_t place(int descriptor) {
    if (fcntl(descriptor, F_GETFL) & O_APPEND) return lseek(descriptor, 0, SEEK_END);
    return lseek(descriptor, 0, SEEK_CUR);
}

static ssize_t written(int descriptor, const void *buffer, size_t size, int64_t offset) {
    char path[PATH_MAX];
    int half = 0, error = fault_of(WRITE, descriptor, path, &half);
    if (error && !half) return errno = error, -1;
    if (half) size = size / 2 ? size / 2 : size;
    int64_t begins = recording >= 0 && is_chosen(path) ? (offset < 0 ? place(descriptor) : offset) : 0;
    ssize_t done = offset < 0 ? syscall(SYS_write, descriptor, buffer, size)
                              : syscall(SYS_pwrite64, descriptor, buffer, size, offset);
    int saved = errno;
    if (done > 0) record_file("write", path, descriptor, begins, buffer, done);
    errno = saved;
    return done;
}

ssize_t write(int descriptor, const void *buffer, size_t size) { return written(descriptor, buffer, size, -1); }
ssize_t pwrite64(int descriptor, const void *buffer, size_t size, off64_t offset) {
    return written(descriptor, buffer, size, offset);
}
ssize_t pwrite(int descriptor, const void *buffer, size_t size, off_t offset) {
    return written(descriptor, buffer, size, offset);
}
ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    if (!armed && recording < 0) return syscall(SYS_writev, descriptor, parts, count);
    ssize_t total = 0;
    for (int part = 0; part < count; part++) {
        ssize_t done = written(descriptor, parts[part].iov_base, parts[part].iov_len, -1);
        if (done < 0) return total ? total : -1;
        total += done;
        if ((size_t)done < parts[part].iov_len) break;
    }
    return total;
}

static int synced(int descriptor, long call) {
    char path[PATH_MAX];
    int error = fault_of(SYNC, descriptor, path, NULL);
    if (error) return errno = error, -1;
    int result = syscall(call, descriptor), saved = errno;
    if (!result) record_file("sync", path, descriptor, 0, NULL, 0);
    errno = saved;
    return result;
}
int fsync(int descriptor) { return synced(descriptor, SYS_fsync); }
int fdatasync(int descriptor) { return synced(descriptor, SYS_fdatasync); }

int ftruncate64(int descriptor, off64_t length) {
    char path[PATH_MAX];
    int error = fault_of(CUT, descriptor, path, NULL);
    if (error) return errno = error, -1;
    int result = syscall(SYS_ftruncate, descriptor, length), saved = errno;
    if (!result) record_file("cut", path, descriptor, length, NULL, 0);
    errno = saved;
    return result;
}
int ftruncate(int descriptor, off_t length) { return ftruncate64(descriptor, length); }

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    char source[PATH_MAX], target[PATH_MAX];
    absolute(from_folder, from, source), absolute(to_folder, to, target);
    int error = fault(RENAME, target, NULL);
    if (error) return errno = error, -1;
    int result = syscall(SYS_renameat2, from_folder, from, to_folder, to, flags), saved = errno;
    if (!result) record(flags & RENAME_EXCHANGE ? "exchange" : "rename", source, target, 0, NULL, 0);
    errno = saved;
    return result;
}
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    return renameat2(from_folder, from, to_folder, to, 0);
}
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int folder, const char *name, int flags) {
    char path[PATH_MAX];
    absolute(folder, name, path);
    int error = fault(REMOVE, path, NULL);
    if (error) return errno = error, -1;
    int result = syscall(SYS_unlinkat, folder, name, flags), saved = errno;
    if (!result) record("remove", path, "", 0, NULL, 0);
    errno = saved;
    return result;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int folder, const char *name, mode_t mode) {
    char path[PATH_MAX];
    absolute(folder, name, path);
    int error = fault(MAKE_FOLDER, path, NULL);
    if (error) return errno = error, -1;
    int result = syscall(SYS_mkdirat, folder, name, mode), saved = errno;
    if (!result) record("folder", path, "", 0, NULL, 0);
    errno = saved;
    return result;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (!result && clock == CLOCK_REALTIME) now->tv_sec += clock_offset_s;
    return result;
}
