package main
import ("testing";"time";"net";"os/exec";"github.com/gosdp/gosdp/examples/internal/programs")
func TestZZ(t *testing.T){
 pg:=programs.Postgres(t)
 relays:=across(t,pg)
 mid,_:=programs.Relay(t,"/tmp/gg/proxy","sdp://127.0.0.1:0","tcp://"+pg)
 norace,_:=programs.Relay(t,"/tmp/gg/proxy","tcp://127.0.0.1:0","sdp://"+mid)
 tcp2,_:=programs.Relay(t,"/tmp/gg/proxy","tcp://127.0.0.1:0","tcp://"+pg)
 tcp,_:=programs.Relay(t,"/tmp/gg/proxy","tcp://127.0.0.1:0","tcp://"+tcp2)
 for i:=range 2 {
 for _,x:=range []struct{n,a string}{{"direct",pg},{"tcp relays",tcp},{"race relays",relays},{"norace relays",norace}}{
  host,port,_:=net.SplitHostPort(x.a)
  q:=func(what,s string){ st:=time.Now(); o,err:=exec.Command("/usr/lib/postgresql/15/bin/psql","-h",host,"-p",port,"-U","postgres","-XAtq","-o","/dev/null","-c",s,"postgres").CombinedOutput(); t.Log(x.n,what,time.Since(st),err,len(o))}
  if i==0&&x.n=="direct" {q("create","create table numbers as select n, repeat('x', n % 1000) as text from generate_series(1, 100000) n")}
  q("nothing","select 1")
  q("copy","copy numbers to stdout")
 }}
 for _,x:=range []struct{n,a string}{{"direct",pg},{"tcp relays",tcp},{"norace relays",norace},{"direct",pg},{"tcp relays",tcp},{"norace relays",norace}}{
  host,port,_:=net.SplitHostPort(x.a)
  exec.Command("/usr/lib/postgresql/15/bin/pgbench","-h",host,"-p",port,"-U","postgres","-i","-q","postgres").Run()
  for _,c:=range []string{"1","4"} {
  o,_:=exec.Command("sh","-c","/usr/lib/postgresql/15/bin/pgbench -h "+host+" -p "+port+" -U postgres -c "+c+" -j 1 -T 1 -n -S postgres | grep -E 'tps|latency'").CombinedOutput()
  t.Log(x.n,"c",c,string(o)) }
 }
}
