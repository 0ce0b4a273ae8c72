// hark-bench-goproxy CHAIN.pem KEY.pem CA.pem UPSTREAM-PORT NAME: a TLS reverse proxy made of Go's
// standard library alone, the second reference of the latency bench: what a careful but ordinary
// implementation of the mediator's work costs. Prints its port.
//
// It ends TLS on both sides, verifies the upstream, reads the whole request body and rewrites one
// header value, as a mediator that substitutes credentials and records must. It records nothing.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
)

// upstream returns a transport that trusts only the CA file and speaks HTTP/1.1, as the others do.
func upstream(caFile, name string) (*http.Transport, error) {
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: pool, ServerName: name},
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
		MaxIdleConnsPerHost: 16,
		DisableCompression:  true,
	}, nil
}

// substitute replaces a placeholder in every header value and reads the body into memory.
func substitute(request *http.Request) {
	for name, values := range request.Header {
		for i := range values {
			values[i] = strings.ReplaceAll(values[i], "hark-placeholder-0", "value")
		}
		request.Header[name] = values
	}
	body, _ := io.ReadAll(request.Body)
	request.Body = io.NopCloser(bytes.NewReader(body))
}

func serve(args []string) error {
	certificate, err := tls.LoadX509KeyPair(args[0], args[1])
	if err != nil {
		return err
	}
	transport, err := upstream(args[2], args[4])
	if err != nil {
		return err
	}
	proxy := httputil.NewSingleHostReverseProxy(
		&url.URL{Scheme: "https", Host: "127.0.0.1:" + args[3]})
	director := proxy.Director
	proxy.Director = func(request *http.Request) { director(request); substitute(request) }
	proxy.Transport = transport
	proxy.FlushInterval = -1
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	server := &http.Server{
		Handler:      proxy,
		TLSConfig:    &tls.Config{Certificates: []tls.Certificate{certificate}},
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ErrorLog:     log.New(io.Discard, "", 0),
	}
	return server.ServeTLS(listener, "", "")
}

func main() {
	if len(os.Args) != 6 {
		log.Fatal("usage: hark-bench-goproxy CHAIN.pem KEY.pem CA.pem UPSTREAM-PORT NAME")
	}
	log.Fatal(serve(os.Args[1:]))
}
