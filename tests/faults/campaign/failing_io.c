/* A layer between a process and its disk: it counts the changes below one folder, and makes one of them fail.
 *
 * Build: cc -shared -fPIC -O1 -o failing_io.so failing_io.c -ldl; use: LD_PRELOAD=failing_io.so. Linux.
 * `faults_arm(folder, k, kind, error)` starts counting; change number k (from 1) then meets the fault. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { COUNT, ONCE, EVER_AFTER, KILL };

static char watched[PATH_MAX];
static long at;
static int kind, error_number, armed;
static atomic_long seen;

void faults_arm(const char *folder, long k, int what, int error) {
    snprintf(watched, sizeof watched, "%s", folder);
    at = k;
    kind = what;
    error_number = error;
    seen = 0;
    armed = 1;
}

long faults_seen(void) { return seen; }

/* Whether this change is to fail: 0 no, 1 yes. A kill never returns. */
static int fault(const char *path) {
    if (!armed || path == NULL || strncmp(path, watched, strlen(watched)) != 0) return 0;
    long number = ++seen;
    if (kind == KILL && number == at) { kill(getpid(), SIGKILL); for (;;) pause(); }
    if ((kind == ONCE && number == at) || (kind == EVER_AFTER && number >= at)) { errno = error_number; return 1; }
    return 0;
}

static const char *of_descriptor(int descriptor, char *buffer) {
    if (!armed) return NULL;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, buffer, PATH_MAX - 1);
    if (length < 0) return NULL;
    buffer[length] = 0;
    return buffer;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define WRITES(flags) ((flags) & (O_CREAT | O_WRONLY | O_RDWR | O_TRUNC))
#define MODE mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }

int open(const char *path, int flags, ...) { MODE REAL(open); if (WRITES(flags) && fault(path)) return -1; return real(path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE REAL(open64); if (WRITES(flags) && fault(path)) return -1; return real(path, flags, mode); }
int openat(int at_, const char *path, int flags, ...) { MODE REAL(openat); if (WRITES(flags) && fault(path)) return -1; return real(at_, path, flags, mode); }
int openat64(int at_, const char *path, int flags, ...) { MODE REAL(openat64); if (WRITES(flags) && fault(path)) return -1; return real(at_, path, flags, mode); }
int rename(const char *from, const char *to) { REAL(rename); return fault(to) ? -1 : real(from, to); }
int renameat(int a, const char *from, int b, const char *to) { REAL(renameat); return fault(to) ? -1 : real(a, from, b, to); }
int link(const char *from, const char *to) { REAL(link); return fault(to) ? -1 : real(from, to); }
int linkat(int a, const char *from, int b, const char *to, int flags) { REAL(linkat); return fault(to) ? -1 : real(a, from, b, to, flags); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); return fault(path) ? -1 : real(path, mode); }
int mkdirat(int a, const char *path, mode_t mode) { REAL(mkdirat); return fault(path) ? -1 : real(a, path, mode); }
int unlink(const char *path) { REAL(unlink); return fault(path) ? -1 : real(path); }
int unlinkat(int a, const char *path, int flags) {
    REAL(unlinkat);
    char buffer[PATH_MAX];
    if (fault(path[0] == '/' ? path : of_descriptor(a, buffer))) return -1;
    return real(a, path, flags);
}
int rmdir(const char *path) { REAL(rmdir); return fault(path) ? -1 : real(path); }
int chmod(const char *path, mode_t mode) { REAL(chmod); return fault(path) ? -1 : real(path, mode); }
int fchmodat(int a, const char *path, mode_t mode, int flags) { REAL(fchmodat); return fault(path) ? -1 : real(a, path, mode, flags); }

/* A write that fails has written half of its bytes first, as on a disk that fills up. */
ssize_t write(int descriptor, const void *bytes, size_t size) {
    REAL(write);
    char buffer[PATH_MAX];
    const char *path = of_descriptor(descriptor, buffer);
    if (path && armed && kind == KILL && seen + 1 == at && strncmp(path, watched, strlen(watched)) == 0) real(descriptor, bytes, size / 2);
    if (!fault(path)) return real(descriptor, bytes, size);
    if (size > 1) real(descriptor, bytes, size / 2);
    errno = error_number;
    return -1;
}
ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    REAL(writev);
    char buffer[PATH_MAX];
    return fault(of_descriptor(descriptor, buffer)) ? -1 : real(descriptor, parts, count);
}
ssize_t pwrite(int descriptor, const void *bytes, size_t size, off_t offset) {
    REAL(pwrite);
    char buffer[PATH_MAX];
    return fault(of_descriptor(descriptor, buffer)) ? -1 : real(descriptor, bytes, size, offset);
}
ssize_t pwrite64(int descriptor, const void *bytes, size_t size, off64_t offset) {
    REAL(pwrite64);
    char buffer[PATH_MAX];
    return fault(of_descriptor(descriptor, buffer)) ? -1 : real(descriptor, bytes, size, offset);
}
int ftruncate(int descriptor, off_t size) { REAL(ftruncate); char b[PATH_MAX]; return fault(of_descriptor(descriptor, b)) ? -1 : real(descriptor, size); }
int ftruncate64(int descriptor, off64_t size) { REAL(ftruncate64); char b[PATH_MAX]; return fault(of_descriptor(descriptor, b)) ? -1 : real(descriptor, size); }
int fsync(int descriptor) { REAL(fsync); char b[PATH_MAX]; return fault(of_descriptor(descriptor, b)) ? -1 : real(descriptor); }
int fdatasync(int descriptor) { REAL(fdatasync); char b[PATH_MAX]; return fault(of_descriptor(descriptor, b)) ? -1 : real(descriptor); }

/* The clock of the day, which somebody sets back: `faults_clock(n, seconds)` moves it after n further looks at it. */
static long looks, looks_before;
static time_t shift;

void faults_clock(long after, long seconds) {
    looks = 0;
    looks_before = after;
    shift = seconds;
}

static time_t moved(void) { return shift && looks++ >= looks_before ? shift : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime);
    int result = real(clock, now);
    if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += moved();
    return result;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    REAL(gettimeofday);
    int result = real(now, zone);
    if (result == 0) now->tv_sec += moved();
    return result;
}
time_t time(time_t *now) {
    struct timespec moment;
    clock_gettime(CLOCK_REALTIME, &moment);
    if (now) *now = moment.tv_sec;
    return moment.tv_sec;
}
