/* Elapsed time is the processor time of the process, for programs that share a processor with others:

       gcc -O2 -shared -fPIC -o processor_clock.so tests/processor_clock.c
       LD_PRELOAD=./processor_clock.so python ...

   One thread alone: the time of all of them is counted. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_REALTIME) clock = CLOCK_PROCESS_CPUTIME_ID;
    return (int)syscall(SYS_clock_gettime, clock, time);
}
