// Go's own client, linked statically: a page, a JSON call, a stream, an upload; or only the page.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

func post(url, body string) *http.Response {
	request, err := http.NewRequest("POST", url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	if strings.Contains(url, "openai") {
		request.Header.Set("Authorization", "Bearer "+os.Getenv("OPENAI_API_KEY"))
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		panic(err)
	}
	return response
}

func main() {
	page, err := http.Get("https://news.example/page")
	if err != nil {
		panic(err)
	}
	text, _ := io.ReadAll(page.Body)
	fmt.Println("page", len(text))
	if len(os.Args) > 1 { // only the page
		return
	}
	chat := "https://api.openai.com/v1/chat/completions"
	answer, _ := io.ReadAll(post(chat, `{"model":"m","messages":[]}`).Body)
	fmt.Println(bytes.Contains(answer, []byte("hello from the stub")))
	events := 0
	lines := bufio.NewScanner(post(chat, `{"model":"m","messages":[],"stream":true}`).Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: ") {
			events++
		}
	}
	fmt.Println("events", events)
	echo, _ := io.ReadAll(post("https://news.example/echo", strings.Repeat("x", 300000)).Body)
	fmt.Println("echo", len(echo))
}
