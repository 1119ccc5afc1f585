// Two functions at addresses with the same low half, called in turn through one pointer: one of the program, one in
// memory that belongs to no file.
#define _GNU_SOURCE
#include "../calllog.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

TRACED static int f_one(void) { __asm__ volatile(""); return 1; }

static uintptr_t map_twin(uintptr_t address)
{
    static const unsigned char code[] = {0xb8, 2, 0, 0, 0, 0xc3};  // mov eax, 2; ret
    for (uintptr_t k = 1; k < 64; k++) {
        uintptr_t twin = address + (k << 32);
        void *page = (void *)(twin & ~(uintptr_t)4095);
        if (mmap(page, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != page) continue;
        memcpy((void *)twin, code, sizeof code);
        if (mprotect(page, 8192, PROT_READ | PROT_EXEC) == 0) return twin;
    }
    return 0;
}

int main(void)
{
    int (*volatile target)(void) = f_one;
    int sum = target();
    uintptr_t twin = map_twin((uintptr_t)f_one);
    if (!twin) { puts("no room"); return 1; }
    for (int i = 0; i < 1000; i++) {
        target = i % 2 ? f_one : (int (*)(void))twin;
        sum += target();
    }
    printf("sum %d\n", sum);
    return 0;
}
