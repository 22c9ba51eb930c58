/* Preloaded into a process by upgrade.py: kills it with SIGKILL at the KILL_AT_STEP-th call that
 * changes files or makes a change durable: before the call, or, of a write, after half of its
 * bytes. Standard output and error don't count. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long steps;

static int is_last_step(void) {
    const char *last = getenv("KILL_AT_STEP");
    return last && atomic_fetch_add(&steps, 1) + 1 == atol(last);
}

static void step(void) {
    if (is_last_step())
        kill(getpid(), SIGKILL);
}

#define NEXT(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

int rename(const char *from, const char *to) {
    step();
    return NEXT(rename)(from, to);
}

int unlink(const char *path) {
    step();
    return NEXT(unlink)(path);
}

int fsync(int file) {
    step();
    return NEXT(fsync)(file);
}

int fdatasync(int file) {
    step();
    return NEXT(fdatasync)(file);
}

ssize_t write(int file, const void *bytes, size_t count) {
    struct stat about;
    if (file > STDERR_FILENO && fstat(file, &about) == 0 && S_ISREG(about.st_mode) &&
        is_last_step()) {
        NEXT(write)(file, bytes, count / 2);
        kill(getpid(), SIGKILL);
    }
    return NEXT(write)(file, bytes, count);
}
