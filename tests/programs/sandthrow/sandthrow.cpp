// Throws inside a seccomp filter that kills on any system call but a few: whoever serves the unwinder there must make none.
#include <cstddef>
#include <cstdio>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#define TRACED __attribute__((noinline, noclone, noipa))

TRACED static int f_throw(int n) { if (n >= 0) throw std::runtime_error("inside"); return n; }
TRACED static int f_nest(int n) { return n == 0 ? f_throw(n) : f_nest(n - 1) + 1; }
TRACED static int f_catch(int n) { try { return f_nest(n); } catch (const std::runtime_error &) { return 1; } }

static bool enter_filter()
{
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 6, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_brk, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    sock_fprog program = {sizeof code / sizeof *code, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Below main, so that frames that were opened before the filter are unwound and returned through inside it.
TRACED static int f_inside(int rounds)
{
    if (!enter_filter()) return -1;
    int caught = 0;
    for (int i = 0; i < rounds; i++) caught += f_catch(i % 9);
    f_throw(caught);
    return 0;
}

int main()
{
    int before = f_catch(3), after = 0;
    try { f_inside(50); } catch (const std::runtime_error &) { after = 1; }
    char text[] = "before x after x\n";
    text[7] = static_cast<char>('0' + before);
    text[15] = static_cast<char>('0' + after);
    return write(1, text, sizeof text - 1) < 0;
}
