/* strided_read: a program without Bedform that reads blocks of a file at equal steps.

   strided_read FILE OFFSET STEP BYTES COUNT MICROSECONDS

   Reads COUNT blocks of BYTES bytes, the first at OFFSET, the next STEP bytes further each time, and
   computes for so many microseconds after each. Prints the seconds that took, and the sum of the
   first 4-byte floats of all blocks: the caller knows what it must be. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Keeps a core busy with the block, so that its values are in use, until the time is over. */
static uint64_t compute(const unsigned char *block, size_t bytes, double seconds)
{
    uint64_t hash = 1469598103934665603u;
    double end = now() + seconds;
    for (size_t at = 0; now() < end; at = (at + 4096) % bytes)
        for (size_t i = at; i < at + 4096 && i < bytes; i++)
            hash = (hash ^ block[i]) * 1099511628211u;
    return hash;
}

static int fail(const char *what)
{
    perror(what);
    return 1;
}

int main(int count, char **arguments)
{
    if (count != 7) {
        fprintf(stderr, "usage: strided_read FILE OFFSET STEP BYTES COUNT MICROSECONDS\n");
        return 2;
    }
    long long offset = atoll(arguments[2]), step = atoll(arguments[3]);
    size_t bytes = (size_t)atoll(arguments[4]);
    long blocks = atol(arguments[5]);
    double pause = 1e-6 * atof(arguments[6]), sum = 0;
    unsigned char *block = malloc(bytes);
    int file = open(arguments[1], O_RDONLY);
    if (file < 0 || block == NULL)
        return fail(arguments[1]);
    uint64_t used = 0;
    double begin = now();
    for (long i = 0; i < blocks; i++) {
        size_t done = 0;
        while (done < bytes) {
            off_t at = (off_t)(offset + i * step) + (off_t)done;
            ssize_t got = pread(file, block + done, bytes - done, at);
            if (got <= 0)
                return fail("pread");
            done += (size_t)got;
        }
        float first;
        memcpy(&first, block, sizeof first);
        sum += first;
        used ^= compute(block, bytes, pause);
    }
    double seconds = now() - begin;
    printf("%.9f %.1f %d\n", seconds, sum, used == 1);
    return 0;
}
