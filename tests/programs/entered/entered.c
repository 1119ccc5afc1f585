// Functions that threads are calling while they are registered as signal handlers: most threads
// are between the first instructions of one at any moment. Half of the functions begin with
// several short instructions, half with one of five bytes. Each of them handles one signal while
// the threads run, and one after they have ended. Prints whether all calls came back with what
// they should.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { FUNCTIONS = 400, THREADS = 3 };

/* `pause` takes long: a thread that is interrupted is mostly before or behind it. */
__asm__(".altmacro\n"
        ".macro pair n\n"
        ".p2align 4\n .type short\\n, @function\n"
        "short\\n: push %rbx\n pause\n pop %rax\n nop\n lea 1(%rdi), %eax\n ret\n"
        ".size short\\n, . - short\\n\n"
        ".p2align 4\n .type long\\n, @function\n"
        "long\\n: mov $7, %eax\n pause\n lea 1(%rdi), %eax\n ret\n"
        ".size long\\n, . - long\\n\n"
        ".pushsection .data.rel.ro, \"aw\"\n .quad short\\n, long\\n\n .popsection\n"
        ".endm\n"
        ".pushsection .data.rel.ro, \"aw\"\n .globl functions\nfunctions:\n .popsection\n"
        ".text\n .set i, 0\n .rept 200\n pair %i\n .set i, i + 1\n .endr\n");

extern int (*const functions[FUNCTIONS])(int);
static volatile int is_ending, is_wrong;

static void *calls(void *unused) {
    while (!is_ending)
        for (int i = 0; i < FUNCTIONS; i++)
            if (functions[i](i) != i + 1) is_wrong = 1;
    return unused;
}

static void handle_once_each(void) {
    for (int i = 0; i < FUNCTIONS; i++) {
        signal(SIGUSR1, (void (*)(int))(void *)functions[i]);
        raise(SIGUSR1);
    }
}

int main(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, calls, NULL);
    usleep(10000);
    handle_once_each();
    is_ending = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    handle_once_each();
    puts(is_wrong ? "a call came back with something else" : "all calls came back");
    return 0;
}
