// An HTTP server and fifty clients of it in one program, as goroutines: ten functions count their own calls. Prints the counts and what
// was answered, the same in every run.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
)

var counts [10]int64
var names = [10]string{"(*server).ServeHTTP", "parse", "(*server).lookup", "answer", "encode", "sum", "client", "ask", "read", "verify"}

const clients, rounds = 50, 8

func count(n int) { atomic.AddInt64(&counts[n], 1) }

type server struct {
	lock sync.Mutex
	seen map[string]int
}

//go:noinline
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	count(0)
	key, n := parse(r.URL.Path)
	s.lookup(key)
	answer(w, key, n)
}

//go:noinline
func parse(path string) (string, int) {
	count(1)
	parts := strings.Split(strings.Trim(path, "/"), "/")
	n := 0
	fmt.Sscan(parts[1], &n)
	return parts[0], n
}

//go:noinline
func (s *server) lookup(key string) {
	count(2)
	s.lock.Lock()
	defer s.lock.Unlock()
	s.seen[key]++
}

//go:noinline
func answer(w io.Writer, key string, n int) {
	count(3)
	fmt.Fprintf(w, "%s %d %s", key, sum(n), encode(key, n))
}

//go:noinline
func encode(key string, n int) string {
	count(4)
	return strings.Repeat(key, n%7+1)
}

//go:noinline
func sum(n int) int {
	count(5)
	if n == 0 {
		return 0
	}
	return n + sum(n-1)
}

//go:noinline
func client(c *http.Client, number int) int {
	count(6)
	total := 0
	for i := 0; i < rounds; i++ {
		key, n := fmt.Sprint("k", number), number%10+i
		total += verify(ask(c, key, n), key, n)
	}
	return total
}

//go:noinline
func ask(c *http.Client, key string, n int) string {
	count(7)
	got, err := c.Get(fmt.Sprintf("http://here/%s/%d", key, n))
	if err != nil {
		panic(err)
	}
	defer got.Body.Close()
	return read(got.Body)
}

//go:noinline
func read(from io.Reader) string {
	count(8)
	all, err := io.ReadAll(from)
	if err != nil {
		panic(err)
	}
	return string(all)
}

//go:noinline
func verify(got, key string, n int) int {
	count(9)
	if got != fmt.Sprintf("%s %d %s", key, n*(n+1)/2, strings.Repeat(key, n%7+1)) {
		panic(got)
	}
	return len(got)
}

func main() {
	folder, err := os.MkdirTemp("", "requests")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	listener, err := net.Listen("unix", folder+"/s")
	if err != nil {
		panic(err)
	}
	go http.Serve(listener, &server{seen: map[string]int{}})
	var all sync.WaitGroup
	var total int64
	for i := 0; i < clients; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			to := &http.Client{Transport: &http.Transport{Dial: func(_, _ string) (net.Conn, error) { return net.Dial("unix", folder+"/s") }}}
			atomic.AddInt64(&total, int64(client(to, i)))
			to.CloseIdleConnections()
		}(i)
	}
	all.Wait()
	for i, name := range names {
		fmt.Println(name, counts[i])
	}
	fmt.Println("total", total)
}
