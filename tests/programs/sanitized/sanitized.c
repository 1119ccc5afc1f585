// Two threads that allocate and call; built with each sanitizer. These want the program's memory in certain places: one ends
// a program that has a mapping elsewhere, and all of them map large shadows where they please.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static int step(int x) { return x + 1; }

static void *work(void *result)
{
    int sum = 0;
    for (int i = 0; i < 10000; i++) {
        char *volatile memory = malloc(i + 1);
        memory[i] = (char)i;
        sum = step(sum) + (memory[i] == 77);
        free(memory);
    }
    *(int *)result = sum;
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    int results[2];
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, work, &results[i])) return 2;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("%d %d\n", results[0], results[1]);
    return 0;
}
