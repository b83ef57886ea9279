/* Reads a file in one of many ways, and prints a checksum of the data, which is the same with and without
 * `bedform run`. */
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 8192, STRIDE = 40960 };

static const char *path;

static void check(int is_right, const char *what)
{
    if (!is_right) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        _exit(9);
    }
}

static uint64_t mix(uint64_t sum, const void *data, size_t count)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < count; i++)
        sum = (sum ^ bytes[i]) * 1099511628211u;
    return sum;
}

static int opened(const char *name)
{
    int file = open(name, O_RDONLY);
    check(file >= 0, name);
    return file;
}

/* One read at an offset. */
static uint64_t at(uint64_t sum, int file, off_t offset, size_t count)
{
    char data[4 * BLOCK];
    ssize_t got = pread(file, data, count, offset);
    check(got >= 0, "pread");
    return mix(mix(sum, &got, sizeof got), data, (size_t)got);
}

static uint64_t strided(uint64_t sum, int file, off_t start, int count)
{
    for (int i = 0; i < count; i++)
        sum = at(sum, file, start + (off_t)i * STRIDE, BLOCK);
    return sum;
}

static uint64_t sequential(void)
{
    uint64_t sum = 1;
    char data[BLOCK];
    int file = opened(path);
    for (ssize_t got; (got = read(file, data, sizeof data)) != 0;) {
        check(got > 0, "read");
        sum = mix(sum, data, (size_t)got);
    }
    close(file);
    return sum;
}

static uint64_t nested(void)
{
    uint64_t sum = 1;
    int file = opened(path);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 5; j++)
            for (int k = 0; k < 6; k++)
                sum = at(sum, file, i * 1100000 + j * 150000 + k * 20000, BLOCK);
    close(file);
    return sum;
}

/* Some hours of each day. */
static uint64_t hours(void)
{
    static const int of_day[] = {5, 6, 14, 15};
    uint64_t sum = 1;
    int file = opened(path);
    for (int day = 0; day < 8; day++)
        for (int i = 0; i < 4; i++)
            sum = at(sum, file, (off_t)(24 * day + of_day[i]) * STRIDE, BLOCK);
    close(file);
    return sum;
}

static uint64_t random_places(void)
{
    uint64_t sum = 1, state = 7;
    int file = opened(path);
    for (int i = 0; i < 500; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        sum = at(sum, file, (off_t)(state >> 42), BLOCK);
    }
    close(file);
    return sum;
}

/* The same strides by every call that reads. */
static uint64_t calls(void)
{
    uint64_t sum = 1;
    char data[BLOCK];
    struct iovec parts[2] = {{data, 1000}, {data + 1000, BLOCK - 1000}};
    int file = opened(path);
    FILE *stream = fopen(path, "rb");
    check(stream != NULL, path);
    for (off_t i = 0; i < 60; i++) {
        off_t start = i * STRIDE;
        ssize_t got = 0;
        switch (i % 5) {
        case 0:
            check(lseek(file, start, SEEK_SET) == start, "lseek");
            got = read(file, data, sizeof data);
            break;
        case 1:
            check(lseek(file, start - lseek(file, 0, SEEK_CUR), SEEK_CUR) == start, "lseek");
            got = readv(file, parts, 2);
            break;
        case 2:
            got = preadv(file, parts, 2, start);
            break;
        case 3:
            got = pread(file, data, sizeof data, start);
            break;
        case 4:
            check(fseeko(stream, start, SEEK_SET) == 0, "fseeko");
            got = (ssize_t)fread(data, 1, sizeof data, stream);
            check(ftello(stream) == start + got, "ftello");
            break;
        }
        check(got == BLOCK, "a read");
        sum = mix(sum, data, sizeof data);
    }
    fclose(stream);
    close(file);
    return sum;
}

/* A child that shares the memory until it is another program. */
static void become_another(int file)
{
    if (vfork() == 0) {
        dup2(file, 50);
        close(file);
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
}

/* Parents and children read on, with descriptors that they share. */
static uint64_t forks(void)
{
    int file = opened(path), ends[2];
    uint64_t sum = strided(1, file, 0, 30);
    check(pipe(ends) == 0, "pipe");
    for (int child = 0; child < 6; child++) {
        pid_t id = fork();
        check(id >= 0, "fork");
        if (id == 0) {
            uint64_t own = strided(sum, file, child * BLOCK, 40);
            check(write(ends[1], &own, sizeof own) == sizeof own, "write");
            _exit(0);
        }
        int status;
        uint64_t own;
        check(waitpid(id, &status, 0) == id && status == 0, "a child");
        check(read(ends[0], &own, sizeof own) == sizeof own, "read of a pipe");
        sum = strided(mix(sum, &own, sizeof own), file, child * 3 * BLOCK, 20);
    }
    become_another(file);
    return strided(sum, file, 0, 30);
}

static void *of_thread(void *number)
{
    int file = opened(path);
    uint64_t *sum = malloc(sizeof *sum);
    *sum = 1;
    for (int round = 0; round < 5; round++)
        *sum = strided(*sum, file, (off_t)(intptr_t)number * BLOCK, 80);
    close(file);
    return sum;
}

static uint64_t threads(void)
{
    uint64_t sum = 1;
    pthread_t all[8];
    for (intptr_t i = 0; i < 8; i++)
        check(pthread_create(&all[i], NULL, of_thread, (void *)i) == 0, "pthread_create");
    for (int i = 0; i < 8; i++) {
        void *own;
        pthread_join(all[i], &own);
        sum = mix(sum, own, sizeof sum);
        free(own);
    }
    return sum;
}

static volatile int is_over;

static void *until_over(void *number)
{
    int file = opened(path);
    while (!is_over)
        strided(1, file, (off_t)(intptr_t)number * BLOCK, 20);
    close(file);
    return NULL;
}

/* Children that are forked while threads read: no thread of the child releases the locks of these. */
static uint64_t forks_of_threads(void)
{
    pthread_t all[4];
    int file = opened(path);
    uint64_t expected = strided(1, file, 0, 40);
    for (intptr_t i = 0; i < 4; i++)
        check(pthread_create(&all[i], NULL, until_over, (void *)i) == 0, "pthread_create");
    for (int child = 0; child < 60; child++) {
        int status;
        pid_t id = fork();
        check(id >= 0, "fork");
        if (id == 0)
            _exit(strided(1, file, 0, 40) != expected);
        check(waitpid(id, &status, 0) == id && status == 0, "a child");
    }
    is_over = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(all[i], NULL);
    return expected;
}

/* A program that may only read, write and end. */
static uint64_t confined(void)
{
    int file = opened(path);
    char data[BLOCK], text[20];
    uint64_t sum = strided(1, file, 0, 40);
    usleep(50000);
    check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0, "prctl");
    for (int i = 0; i < 40; i++) {
        ssize_t got = read(file, data, sizeof data);
        if (got <= 0)
            syscall(SYS_exit, 8);
        sum = mix(sum, data, (size_t)got);
    }
    for (int i = 0; i < 16; i++)
        text[i] = "0123456789abcdef"[sum >> (60 - 4 * i) & 15];
    if (write(1, text, 16) != 16)
        syscall(SYS_exit, 8);
    syscall(SYS_exit, 0);
    return 0;
}

/* One number for several files, one after another, closed in every way. */
static uint64_t reuse(void)
{
    uint64_t sum = 1;
    int number = opened(path);
    for (int i = 0; i < 12; i++) {
        sum = strided(sum, number, i * 100, 12);
        int other = opened(i % 2 ? path : "/proc/self/exe");
        if (i % 4 == 0) {
            check(dup2(other, number) == number, "dup2");
            close(other);
        } else if (i % 4 == 1) {
            close(number);
            check(fcntl(other, F_DUPFD, number) == number, "fcntl");
            close(other);
        } else if (i % 4 == 2) {
            FILE *stream = fdopen(number, "rb");
            fclose(stream);
            check(dup3(other, number, O_CLOEXEC) == number, "dup3");
            close(other);
        } else {
            close(other);
            other = opened("/dev/zero");
            check(dup2(other, number) == number, "dup2");
            close(other);
        }
    }
    return sum;
}

/* Failing reads return the same errors; reads at the end are short. */
static uint64_t ends(void)
{
    uint64_t sum = 1;
    char data[BLOCK];
    struct stat status;
    int file = opened(path), folder = opened("/"), pipes[2];
    check(fstat(file, &status) == 0 && pipe(pipes) == 0, "fstat");
    errno = 77;
    sum = strided(sum, file, 0, 40);
    check(errno == 77, "errno was changed");
    for (off_t back = 3; back > -2; back--)
        sum = at(sum, file, status.st_size - back * 5000, BLOCK);
    struct {
        int file;
        off_t offset;
    } wrong[] = {{-1, 0}, {folder, 0}, {pipes[0], 0}, {file, -1}, {100000, 0}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        errno = 0;
        ssize_t got = pread(wrong[i].file, data, sizeof data, wrong[i].offset);
        printf("%zd %d\n", got, errno);
    }
    check(lseek(file, -100, SEEK_END) >= 0, "lseek");
    for (int i = 0; i < 3; i++) {
        ssize_t got = read(file, data, sizeof data);
        printf("%zd\n", got);
        sum = mix(sum, data, (size_t)got);
    }
    return sum;
}

/* As many descriptors as the system gives. */
static uint64_t many(void)
{
    uint64_t sum = 1;
    struct rlimit limit;
    check(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
    limit.rlim_cur = limit.rlim_max < 20000 ? limit.rlim_max : 20000;
    check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    int first = opened(path), last = first;
    for (int copy; (copy = dup(first)) >= 0;)
        last = copy;
    for (int number = first; number <= last; number++)
        sum = at(sum, number, number % 100 * STRIDE, BLOCK);
    for (int number = last; number > first; number--)
        close(number);
    return strided(sum, first, 0, 40);
}

static void *blocked(void *ends_)
{
    char byte;
    int *pipes = ends_;
    check(read(pipes[0], &byte, 1) == 1, "read");
    return NULL;
}

/* A thread that is cancelled in a read. */
static uint64_t cancelled(void)
{
    int pipes[2];
    pthread_t thread;
    void *result;
    check(pipe(pipes) == 0, "pipe");
    check(pthread_create(&thread, NULL, blocked, pipes) == 0, "pthread_create");
    usleep(100000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    check(result == PTHREAD_CANCELED, "the thread was not cancelled");
    int file = opened(path);
    return strided(1, file, 0, 40);
}

static int of_handler;
static volatile sig_atomic_t handled;

static void handle(int number)
{
    (void)number;
    char data[BLOCK];
    check(pread(of_handler, data, sizeof data, (off_t)handled * STRIDE % 4000000) > 0, "pread");
    handled++;
}

/* A signal handler that reads, interrupting malloc, a read, or the preloaded library. */
static uint64_t handler(void)
{
    uint64_t sum = 1;
    struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    int file = opened(path);
    of_handler = opened(path);
    check(sigaction(SIGALRM, &action, NULL) == 0, "sigaction");
    check(setitimer(ITIMER_REAL, &often, NULL) == 0, "setitimer");
    while (handled < 2000) {
        void *blocks[20];
        for (int i = 0; i < 20; i++)
            blocks[i] = malloc((size_t)(i + 1) * 100);
        sum = strided(1, file, 0, 20);
        for (int i = 0; i < 20; i++)
            free(blocks[i]);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    return sum;
}

static void *last(void *nothing)
{
    int file = opened(path);
    printf("%016llx\n", (unsigned long long)strided(1, file, 0, 40));
    fflush(stdout);
    return nothing;
}

/* The process ends when its last thread does. */
static uint64_t last_thread(void)
{
    pthread_t thread;
    check(pthread_create(&thread, NULL, last, NULL) == 0, "pthread_create");
    pthread_exit(NULL);
}

static int is_resident(int file, off_t offset, size_t count)
{
    unsigned char pages[64];
    void *map = mmap(NULL, count, PROT_READ, MAP_SHARED, file, offset);
    check(map != MAP_FAILED && mincore(map, count, pages) == 0, "mincore");
    munmap(map, count);
    int all = 1;
    for (size_t i = 0; i < (count + 4095) / 4096; i++)
        all &= pages[i];
    return all;
}

/* Whether the next block gets into the page cache before it is read; without advice it does not. */
static uint64_t ahead(void)
{
    int file = opened(path);
    off_t next = 11 * STRIDE;
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    if (is_resident(file, next, BLOCK)) {
        printf("in memory always\n");
        return 0;
    }
    strided(1, file, 0, 10);
    int is_there = 0;
    const char *looks = getenv("LOOKS");
    for (int i = 0; i < (looks ? atoi(looks) : 50) && !is_there; i++) {
        usleep(i ? 20000 : 2000);
        is_there = is_resident(file, next, BLOCK);
    }
    printf(is_there ? "ahead\n" : "not ahead\n");
    return 0;
}

static uint64_t mapped(void)
{
    int file = opened(path);
    char *map = mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE, file, 0);
    check(map != MAP_FAILED, "mmap");
    return mix(1, map, 1 << 20);
}

static uint64_t plain(void)
{
    int file = opened(path);
    return strided(1, file, 0, 100);
}

static uint64_t killed(void)
{
    int file = opened(path);
    strided(1, file, 0, 50);
    raise(SIGKILL);
    return 0;
}

static uint64_t executed(void)
{
    int file = opened(path);
    strided(1, file, 0, 50);
    execl("/proc/self/exe", "reads", "strided", path, (char *)NULL);
    return 0;
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        uint64_t (*read)(void);
    } ways[] = {
        {"sequential", sequential}, {"strided", plain},      {"nested", nested},
        {"random", random_places},  {"calls", calls},        {"forks", forks},
        {"threads", threads},       {"reuse", reuse},        {"ends", ends},
        {"many", many},             {"cancelled", cancelled}, {"handler", handler},
        {"last-thread", last_thread}, {"ahead", ahead},      {"mapped", mapped},
        {"killed", killed},         {"executed", executed},
        {"hours", hours},           {"confined", confined},     {"forks-of-threads", forks_of_threads},
    };
    if (count != 3)
        return 2;
    path = arguments[2];
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strcmp(arguments[1], ways[i].name) == 0) {
            printf("%016llx\n", (unsigned long long)ways[i].read());
            return 0;
        }
    return 2;
}
