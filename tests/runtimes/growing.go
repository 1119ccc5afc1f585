// A thousand goroutines whose stacks grow and move again and again, with garbage collected meanwhile, which lets stacks shrink. Prints
// the counts of two functions, the same in every run.
package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

const goroutines, rounds = 1000, 6

var grown, waited int64

//go:noinline
func grow(n int) int {
	atomic.AddInt64(&grown, 1)
	var space [256]byte
	space[n%256] = byte(n)
	if n == 0 {
		return wait()
	}
	return grow(n-1) + int(space[n%256]&1)
}

//go:noinline
func wait() int {
	atomic.AddInt64(&waited, 1)
	runtime.Gosched()
	return 0
}

func main() {
	var all sync.WaitGroup
	var total int64
	start := make(chan struct{})
	for i := 0; i < goroutines; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			<-start
			for round := 0; round < rounds; round++ {
				atomic.AddInt64(&total, int64(grow((i*7+round*31)%60)))
				if i%200 == 0 {
					runtime.GC()
				}
			}
		}(i)
	}
	close(start)
	all.Wait()
	fmt.Println("grow", grown)
	fmt.Println("wait", waited)
	fmt.Println("total", total)
}
