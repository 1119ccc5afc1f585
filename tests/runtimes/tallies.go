// Calls of every kind that Go makes, counted by the functions themselves: direct, through closures, interfaces, method values and
// function values with more arguments than other languages pass in registers, deferred, in goroutines that change threads, in panics
// that are recovered, with stacks that grow. Prints the count of each function, the same in every run.
package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

var (
	plain, many, closed, shown, held, deferred, panics, worked, grown, generic atomic64
	sink                                                                       int64
)

type atomic64 struct{ n int64 }

func (a *atomic64) add() { atomic.AddInt64(&a.n, 1) }

//go:noinline
func direct(n int) int {
	plain.add()
	return n + 1
}

// Ten words: nine in registers (rax, rbx, rcx, rdi, rsi, r8 to r11), one on the stack.
//
//go:noinline
func ten(a, b, c, d, e, f, g, h, i, j int) int {
	many.add()
	return a + 2*b + 3*c + 4*d + 5*e + 6*f + 7*g + 8*h + 9*i + 10*j
}

type shape interface{ area(int) int }
type square struct{ side int }
type circle struct{ radius int }

//go:noinline
func (s square) area(n int) int {
	shown.add()
	return s.side * s.side * n
}

//go:noinline
func (c *circle) area(n int) int {
	held.add()
	return 3 * c.radius * c.radius * n
}

//go:noinline
func later(n *int) {
	deferred.add()
	*n++
}

//go:noinline
func fails(n int) (result int) {
	defer func() {
		if recover() != nil {
			result = n
		}
	}()
	panics.add()
	var none []int
	return none[n]
}

//go:noinline
func grow(n int) int {
	grown.add()
	var space [512]byte
	space[n%512] = byte(n)
	if n == 0 {
		return int(space[0])
	}
	return grow(n-1) + int(space[n%512]&1)
}

//go:noinline
func max[T int | float64](a, b T) T {
	generic.add()
	if a > b {
		return a
	}
	return b
}

//go:noinline
func work(n int, in <-chan int, out chan<- int) {
	worked.add()
	for x := range in {
		if x%16 == 0 {
			runtime.Gosched()
		}
		out <- direct(x) + n
	}
}

//go:noinline
func apply(f func(int) int, n int) int { return f(n) }

func main() {
	value := ten
	total := 0
	for i := 0; i < 2000; i++ {
		k := i
		closure := func(n int) int {
			closed.add()
			return n + k
		}
		total += apply(closure, i)
		total += value(i, 1, 2, 3, 4, 5, 6, 7, 8, 9)
		total += ten(9, 8, 7, 6, 5, 4, 3, 2, 1, i)
		var s shape = square{i}
		if i%2 == 0 {
			s = &circle{i}
		}
		total += s.area(2)
		method := s.area
		total += method(1)
		func() {
			defer later(&total)
			total += max(i, 1000)
		}()
		total += int(max(float64(i), 0.5))
		if i%20 == 0 {
			total += fails(i)
		}
	}
	in, out := make(chan int), make(chan int)
	var workers sync.WaitGroup
	for i := 0; i < 50; i++ {
		workers.Add(1)
		go func(i int) {
			defer workers.Done()
			total := grow(i * 8)
			atomic.AddInt64(&sink, int64(total))
			work(i%2, in, out)
		}(i)
	}
	go func() {
		for i := 0; i < 4000; i++ {
			in <- i
		}
		close(in)
	}()
	sum := 0
	for i := 0; i < 4000; i++ {
		sum += <-out / 4
	}
	workers.Wait()
	// Many stacks that grow, and move, at the same time.
	for i := 0; i < 1000; i++ {
		workers.Add(1)
		go func(i int) {
			defer workers.Done()
			atomic.AddInt64(&sink, int64(grow(i%64)))
		}(i)
	}
	workers.Wait()
	runtime.GC()
	for _, of := range []struct {
		name  string
		calls *atomic64
	}{
		{"main.direct", &plain}, {"main.ten", &many}, {"main.square.area", &shown}, {"main.(*circle).area", &held},
		{"main.later", &deferred}, {"main.fails", &panics}, {"main.grow", &grown}, {"main.work", &worked},
		{"main.main.func1", &closed},
	} {
		fmt.Println(of.name, of.calls.n)
	}
	// Two functions, one for each form that the compiler makes.
	fmt.Println("# main.max", generic.n, total)
}
