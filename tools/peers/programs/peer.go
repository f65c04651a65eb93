// Go programs that read messages, and report what they read; peer.py has the format.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

var mutex sync.Mutex

type report map[string]any
type pairs [][2]string

func say(r report) {
	line, _ := json.Marshal(r)
	mutex.Lock()
	defer mutex.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

// latin gives each byte a character of its own, which JSON can carry.
func latin(s string) string {
	runes := make([]rune, len(s))
	for i := 0; i < len(s); i++ {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

func (p *pairs) add(place, text string) { *p = append(*p, [2]string{latin(place), latin(text)}) }

func (p *pairs) fields(h http.Header) {
	for name, values := range h {
		p.add("name", name)
		for _, value := range values {
			p.add("field "+name, value)
		}
	}
}

func (p *pairs) trailers(h http.Header) {
	for _, values := range h {
		for _, value := range values {
			p.add("trailer", value)
		}
	}
}

func address(a string) string {
	host, _, _ := net.SplitHostPort(a)
	return host
}

func answer(w http.ResponseWriter, r *http.Request) {
	seen := pairs{}
	seen.add("method", r.Method)
	seen.add("target", r.RequestURI)
	seen.add("path", r.URL.Path)
	for _, values := range r.URL.Query() {
		for _, value := range values {
			seen.add("query", value)
		}
	}
	seen.add("field host", r.Host)
	seen.fields(r.Header)
	say(report{"from": address(r.RemoteAddr), "seen": seen})
	body, _ := io.ReadAll(r.Body)
	seen = pairs{}
	if len(body) > 0 {
		seen.add("body", string(body))
	}
	seen.trailers(r.Trailer)
	say(report{"from": address(r.RemoteAddr), "seen": seen})
	w.Write([]byte("ok"))
}

func listen() net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	say(report{"port": l.Addr().(*net.TCPAddr).Port})
	return l
}

func serve() {
	server := &http.Server{Handler: http.HandlerFunc(answer), ReadTimeout: 5 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	server.Serve(listen())
}

func serveTLS(certificate string) {
	pair, err := tls.LoadX509KeyPair(certificate, certificate)
	if err != nil {
		log.Fatal(err)
	}
	l := listen()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			c.SetDeadline(time.Now().Add(5 * time.Second))
			config := &tls.Config{MinVersion: tls.VersionTLS10, NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{pair}}
			config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
				seen := pairs{}
				seen.add("sni", hello.ServerName)
				seen.add("alpn", strings.Join(hello.SupportedProtos, " "))
				say(report{"from": address(c.RemoteAddr().String()), "seen": seen})
				return nil, nil
			}
			tls.Server(c, config).Handshake()
		}()
	}
}

func fetch(number, url string) {
	seen := pairs{}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	request, _ := http.NewRequestWithContext(ctx, "GET", url, nil)
	if response, err := http.DefaultClient.Do(request); err == nil {
		seen.fields(response.Header)
		body, _ := io.ReadAll(response.Body)
		seen.trailers(response.Trailer)
		seen.add("body", string(body))
		response.Body.Close()
	}
	say(report{"from": number, "seen": seen})
}

func main() {
	switch os.Args[1] {
	case "serve":
		go serve()
	case "tls":
		go serveTLS(os.Args[2])
	}
	var jobs sync.WaitGroup
	places := make(chan bool, 8)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if words[0] == "flush" {
			jobs.Wait()
			say(report{"flush": lines.Text()})
			continue
		}
		places <- true
		jobs.Add(1)
		go func() {
			fetch(words[0], words[1])
			<-places
			jobs.Done()
		}()
	}
}
