// Go that calls C that calls Go, in goroutines and in threads that C makes, with garbage collection meanwhile, and a nil pointer
// that is recovered from: the same output in every run.
package main

/*
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
extern int goCallback(int);
static int twice(int x) { return 2 * x; }
static int through(int n) { int s = 0; for (int i = 0; i < n; i++) s += goCallback(i); return s; }
static void *body(void *p) { *(int *)p = through(10); return p; }
static int threaded(void) { pthread_t t; int r = 0; pthread_create(&t, 0, body, &r); pthread_join(t, 0); return r; }
*/
import "C"

import (
	"fmt"
	"os/user"
	"runtime"
	"sync"
)

//export goCallback
func goCallback(x C.int) C.int { return C.twice(x) + 1 }

func main() {
	var wg sync.WaitGroup
	var mu sync.Mutex
	total := 0
	for i := 0; i < 20; i++ {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			r := int(C.through(C.int(i * 10)))
			mu.Lock()
			total += r
			mu.Unlock()
			runtime.GC()
		}(i)
	}
	wg.Wait()
	fmt.Println(total, C.threaded())
	_, err := user.Current()
	fmt.Println(err)
	defer func() { fmt.Println(recover()) }()
	var p *int
	*p = 1
}
