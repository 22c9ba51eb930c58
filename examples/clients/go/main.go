// go-redis against Switchback, in both versions of the protocol.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "go-redis: "+format+"\n", args...)
	os.Exit(1)
}

func check(what string, got, wanted any, err error) {
	if err != nil {
		fail("%s: %v", what, err)
	}
	if !reflect.DeepEqual(got, wanted) {
		fail("%s: got %#v, wanted %#v", what, got, wanted)
	}
}

func refused(what string, err error, words string) {
	if err == nil || !strings.Contains(err.Error(), words) {
		fail("%s: got %v, wanted an error with %q", what, err, words)
	}
}

func smoke(client *redis.Client) {
	pong, err := client.Ping(ctx).Result()
	check("ping", pong, "PONG", err)

	set, err := client.Set(ctx, "smoke:a", "1", 100*time.Second).Result()
	check("set", set, "OK", err)
	value, err := client.Get(ctx, "smoke:a").Result()
	check("get", value, "1", err)
	ttl, err := client.TTL(ctx, "smoke:a").Result()
	check("ttl", ttl > 98*time.Second && ttl <= 100*time.Second, true, err)
	fresh, err := client.SetNX(ctx, "smoke:a", "2", 0).Result()
	check("setnx", fresh, false, err)
	number, err := client.IncrBy(ctx, "smoke:a", 41).Result()
	check("incrby", number, int64(42), err)
	expired, err := client.Expire(ctx, "smoke:a", time.Hour).Result()
	check("expire", expired, true, err)
	value, err = client.GetEx(ctx, "smoke:a", 0).Result()
	check("getex persist", value, "42", err)
	value, err = client.GetDel(ctx, "smoke:a").Result()
	check("getdel", value, "42", err)
	if err := client.Get(ctx, "smoke:a").Err(); !errors.Is(err, redis.Nil) {
		fail("get of nothing: %v", err)
	}

	check("mset", client.MSet(ctx, "smoke:x", "1", "smoke:y", "2").Err(), nil, nil)
	values, err := client.MGet(ctx, "smoke:x", "smoke:none", "smoke:y").Result()
	check("mget", values, []any{"1", nil, "2"}, err)
	count, err := client.Exists(ctx, "smoke:x", "smoke:none", "smoke:y").Result()
	check("exists", count, int64(2), err)
	found := map[string]bool{}
	keys := client.Scan(ctx, 0, "smoke:*", 100).Iterator()
	for keys.Next(ctx) {
		found[keys.Val()] = true
	}
	check("scan", found, map[string]bool{"smoke:x": true, "smoke:y": true}, keys.Err())
	count, err = client.Del(ctx, "smoke:x", "smoke:y", "smoke:none").Result()
	check("del", count, int64(2), err)

	// A hundred goroutines over the pool: nothing is lost.
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			for range 20 {
				if err := client.Incr(ctx, "smoke:counter").Err(); err != nil {
					fail("incr: %v", err)
				}
			}
		})
	}
	group.Wait()
	number, err = client.Get(ctx, "smoke:counter").Int64()
	check("concurrent incr", number, int64(2000), err)
	check("del", client.Del(ctx, "smoke:counter").Err(), nil, nil)

	commands, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := range 500 {
			pipe.Set(ctx, "smoke:p", i, 0)
			pipe.Get(ctx, "smoke:p")
		}
		return nil
	})
	check("pipeline", len(commands), 1000, err)
	check("pipeline's end", commands[999].(*redis.StringCmd).Val(), "499", nil)
	check("del", client.Del(ctx, "smoke:p").Err(), nil, nil)

	refused("hset", client.HSet(ctx, "smoke:h", "f", "v").Err(), "strings only")
	commands, err = client.TxPipelined(ctx, func(pipe redis.Pipeliner) error { return pipe.Incr(ctx, "smoke:t").Err() })
	check("transaction", len(commands), 1, err)
	check("its end", commands[0].(*redis.IntCmd).Val(), int64(1), nil)
	check("del", client.Del(ctx, "smoke:t").Err(), nil, nil)
}

func main() {
	address := net.JoinHostPort(os.Args[1], os.Args[2])
	for _, protocol := range []int{2, 3} {
		options := redis.Options{Addr: address, Password: os.Getenv("PASSWORD"), Protocol: protocol, ClientName: "smoke"}
		client := redis.NewClient(&options)
		client.Del(ctx, "smoke:a", "smoke:counter")
		smoke(client)
		client.Close()
		fmt.Printf("go-redis %s, RESP%d: ok\n", redis.Version(), protocol)
	}
}
