/* The wall clock jumps by years, in both directions, ten times a second; the monotonic one does not.
   cc -shared -fPIC; LD_PRELOAD. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const long YEAR = 365L * 24 * 3600;

static int read_clock(clockid_t id, struct timespec *out) {
    return (int)syscall(SYS_clock_gettime, id, out);
}

static long jump(void) {
    struct timespec now;
    read_clock(CLOCK_MONOTONIC, &now);
    long tenths = now.tv_sec * 10 + now.tv_nsec / 100000000;
    return (tenths * 7 % 23 - 11) * YEAR;
}

int clock_gettime(clockid_t id, struct timespec *out) {
    int failed = read_clock(id, out);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) out->tv_sec += jump();
    return failed;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
