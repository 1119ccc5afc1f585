// Works in rounds, one for each byte that it reads: prepares, parses (which looks a word up), renders (which draws, and
// draws each line), finishes. Prints what it has made; with `threads` two of them do so. For what is recorded of some
// functions at some times (tests/between.py).
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static __thread int made;

__attribute__((noinline)) int word(int n) { return made += n; }
__attribute__((noinline)) int parse(int n) { return word(n) + word(n + 1); }
__attribute__((noinline)) int line(int n) { return made ^= n; }
__attribute__((noinline)) int draw(int n) { return line(n) + line(n + 2); }
__attribute__((noinline)) int render(int n) { return draw(n) + draw(n + 1); }
__attribute__((noinline)) void prepare(int n) { made += n; }
__attribute__((noinline)) void finish(int n) { made -= n; }

static int each(int n) {
    prepare(n);
    int sum = parse(n) + render(n);
    finish(n);
    return sum;
}

static void *rounds(void *last) {
    long sum = 0;
    for (int n = 0; n < 1000; n++) sum += each(n);
    return (void *)(sum + (long)last);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "threads")) {
        pthread_t thread;
        void *sums[2];
        pthread_create(&thread, NULL, rounds, (void *)1);
        sums[0] = rounds((void *)2);
        pthread_join(thread, &sums[1]);
        printf("%ld %ld\n", (long)sums[0], (long)sums[1]);
        return 0;
    }
    char byte;
    for (int n = 1; read(0, &byte, 1) == 1; n++) printf("%d: %d\n", n, each(n)), fflush(stdout);
    return 5;
}
