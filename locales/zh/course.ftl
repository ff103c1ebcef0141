# The course: write your own lock. Its terminal, the README of its folder, and its page.
course-title = 练习：自己写一把锁
course-lead = 八关。每一关多一种真实的锁会遇到的故障，最后能过关的只剩带栅栏令牌的锁。
course-how = 你写两个函数：acquire 和 release。holdfast course check 用它们加锁：两个进程里的客户端读出库存、减一、写回。然后它制造故障，再从账本里看有没有丢失更新。
course-needs = 需要 Holdfast，以及 Python（3.9 及以上）、JavaScript（Node.js 18 及以上）或 Rust；每次检查都会自己启动 Redis 和 Postgres。什么都不会发送到别处。
course-begin = 开始
course-levels = 关卡
course-collision = 互相冲突的两个请求
course-solved = 第 1 关的解法

course-level = 第 { $level } 关（共 8 关）：{ $title }

course-1-title = 先有一把锁
course-1-fault = 没有
course-1-learned = 两个客户端读到同一个数，都减一，就丢了一次更新。用一条原子命令设置的锁能把它们分开。
course-1-hint-1 = Redis 有一条命令，只在 key 不存在时才设置：SET key value NX。没有返回 OK，就睡一小会儿再试。
course-1-hint-2 = 先 GET 再 SET 是两条命令，中间会插进别的客户端。两次尝试之间睡大约 10 毫秒，过了 wait_s 就放弃。

course-2-title = 锁必须会过期
course-2-fault = 持锁者被杀死
course-2-learned = 死掉的进程不会释放锁。租约会自己过期，所以设置 key 的同时就要设好过期时间，而不是之后再补。（检查看不出这个区别：这里没有进程恰好在两条命令之间被杀死。）
course-2-hint-1 = Redis 可以自己删除 key：PX 后面是毫秒数。用 ttl_ms。
course-2-hint-2 = 先 SET 再 PEXPIRE 是两条命令：在它们之间被杀死，就留下一个永不过期的 key。SET key value NX PX ttl_ms 只是一条。

course-3-title = 只释放自己的锁
course-3-fault = 业务比租约长
course-3-learned = DEL 不管锁是谁的都会删掉。token（持锁者标识）说明锁是谁的，而比较和删除是同一步。（先 GET 再 DEL 在这里也会通过：租约很少恰好在两者之间过期。）
course-3-hint-1 = 每次获取都用一个独有的值，即随机的 token；只有 key 里还是这个值时才删除。
course-3-hint-2 = GET 和 DEL 是两条命令，租约可能正好在中间过期。脚本是一步：EVAL "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end" 1 key token

course-4-title = 执行业务时续期
course-4-fault = 业务比租约长
course-4-learned = 租约的长度是对业务时间的猜测。有了后台续期就不用再猜，持锁者一结束，续期也随之结束。
course-4-hint-1 = 在 acquire 里启动一个线程（或定时器），每过三分之一租约就重设过期时间，在 release 里停掉它。
course-4-hint-2 = 只续自己的锁：脚本先比较 token，再 PEXPIRE。续期失败，说明锁已经不是自己的，就停下。

course-5-title = 栅栏令牌（fence）
course-5-fault = 持锁者的进程被暂停
course-5-learned = 进程不知道时间已经过去，没有锁能拦住它。存储可以：它比较栅栏令牌，拒绝已被后来者超过的持锁者。
course-5-hint-1 = 从这一关起 acquire 返回两个值：token 和栅栏令牌。对另一个 key 执行 INCR 就能计数。
course-5-hint-2 = 这个数必须在持有锁时取得，最好在同一步：用脚本设置 key，再返回另一个 key 的 INCR。

course-6-title = 栅栏令牌不能随 Redis 丢失
course-6-fault = Redis 丢失数据
course-6-learned = 会丢失的计数器定不了先后。栅栏令牌要来自记得自己发过哪些编号的存储。
course-6-hint-1 = postgres(…) 执行一条语句。序列的每个数只给一次，Postgres 会记住它。已经有一个序列：fences。
course-6-hint-2 = 设置 key 之后再从序列取数：select nextval('fences')。先取的数，可能比更快的客户端的数小。

course-7-title = 很多客户端
course-7-fault = 客户端多一倍
course-7-learned = 不断轮询给服务器的开销比锁本身还大，而且轮到谁全凭运气。排队的客户端只问一次，轮到时就被唤醒。
course-7-hint-1 = Redis 可以替你等：别的客户端推入元素时，BLPOP 才返回；等待的客户端按先后顺序得到元素。
course-7-hint-2 = 让 release 往锁旁边的列表推入一个元素，即接力棒。拿到接力棒的客户端才可以设置 key。接力棒会随持锁者一起丢：既没有持锁者也没有接力棒时，必须补上一根，而且不能补成两根。

course-8-title = 全部一起来
course-8-fault = 主从切换、网络分区、取消的请求、断开的连接
course-8-learned = 你的锁现在做到了 Redis 上的锁能做到的：大多数时候互斥，始终有进展，其余的由栅栏令牌保证。
course-8-hint-1 = 看看没通过的是哪种故障，两个客户端各做了什么。每次调用服务器都可能抛出异常；等消息的代码，也要应付消息永远不来。
course-8-hint-2 = 被取消的 acquire 不能留下锁、队列里的位置，或者没有主人却还在继续的续期：先清理，再重新抛出异常。后台线程如果遇到第一个错误就结束，之后需要它时就没有了。

## Creating a folder
course-new = { $folder } 已准备好。在 { $file } 里写 acquire 和 release，然后运行：
course-new-exists = { $folder } 已存在且不为空。请换一个新文件夹。
course-readme-files = { $file } 由你来写。{ $helper } 与判定程序通信，并为你准备好 Redis 和 Postgres：开头几行说明怎样调用。.course.json 保存你的进度，可以上交：里面没有姓名、密码和代码。
course-readme-commands = holdfast course check 按你的关卡检查 { $file }，需要十秒到两分钟。加上 --hint 会给出提示。holdfast course status 显示所有关卡。
course-readme-first = 第一个任务

## Checking
course-passed = 通过
course-failed = 没有通过
course-verdict = { $verdict }（{ $file }，种子 { $seed }）
course-next = 下一关：{ $task }
course-last = 你已通过所有关卡。
course-what-learned = 这一关说明：{ $learned }
course-violation = { $fault }：{ $found }。
course-evidence = 按先后发生的事（w0 c2 是 0 号进程的 2 号客户端）：
course-picture = 画成图，包括所有客户端：{ $file }
course-hint-offer = 更多提示：holdfast course check { $folder } --hint
course-hint-last = 这是这一关的最后一条提示。
course-hint = 提示 { $number }/{ $count }：{ $hint }
course-level-of-option = 因为用了 --level，进度没有改变。
course-rule-lost = 没有丢失更新
course-lost-late = { $lost }；另有 { $late } 次，在一轮超过半个租约之后
course-rule-fenced = 核对栅栏令牌时没有丢失更新
course-rule-held = 至少 30% 的时间有人持有
course-rule-redis = 锁在 Redis 里（每次获取的命令数）
course-rule-store = 不排斥其他服务器的客户端
course-rule-burn = 等待的客户端每秒最多 400 条命令
course-rule-blocked = { $ms } 毫秒之内锁又能被拿到
course-rule-leftover = 没有留下 key
course-rule-release = 锁已丢失，释放时不返回“ok”
course-rule-true = 锁还在，释放时不返回“丢失”
course-rule-kept = 下一个持锁者的锁没有被删掉
course-rule-fences = 栅栏令牌从不倒退
course-rule-jain = 获锁均匀：0.9 或以上
course-rule-wait = 等待时间最多是公平队列的 3 倍
course-rule-commands = 每次获取最多 6 条命令
course-rule-starved = 没有客户端一直拿不到锁
course-rule-ran = 故障能够发生
course-no-redis = 这两个函数没有向 Redis 发送命令。放在文件里或一个进程内存里的锁，只能隔开同一台机器上的进程；检查里的两个进程代表两台机器。（别的服务器上的锁用 holdfast judge 评测。）
course-no-store = 两个客户端各有自己的 Redis 和 Postgres，请求同一个 key，却只有一个得到锁。所以锁不在这些服务器里，而是这台机器上的文件、套接字或变量；两台机器不会共享它。
course-store-both = 两个都得到了锁
course-store-one = 只有一个得到了锁
course-sleeps = 大部分时间里没有客户端持有锁：要么客户端两次尝试之间睡得太久，要么 release 返回了“true”，却把 key 留在 Redis 里。
course-errors = acquire 或 release 有 { $calls } 次调用以错误结束，而 Redis 和 Postgres 一直都在。最后一次：{ $error }
course-burns = 等待的客户端不停地问 Redis，把持锁者也拖慢了。两次尝试之间睡大约 10 毫秒。（所有命令都算，脚本里调用的也算；每次获取扣除六条。）
course-commands = 所有客户端的全部命令都算，脚本里调用的也算：尝试、续期、后台运行的都在内；没有客户端要锁时，后台的命令按 10 毫秒（一轮）计入。建立连接的命令不算。
course-stderr = 写到 stderr 的最后几行（故障：{ $fault }）：
course-rules = 规则
course-measured = 测得
course-rules-hold = 其他 { $rules } 条规则成立
course-empty = acquire 一次也没有拿到锁：它没有向任何客户端返回 token。它还是空的吗？
course-endless = acquire 的一次调用在超过 wait_s 之后 { $seconds } 秒仍没有结束。过了 wait_s 就要放弃。
course-endless-load = 文件在 { $seconds } 秒之内没有加载完。写在函数外面的代码一开始就会运行，而且必须会结束。
course-endless-release = release 的一次调用在 { $seconds } 秒之内没有结束。它不能等待锁，也不能被一次不结束的 acquire 挡住。
course-missing-file = { $folder } 里缺少 { $file }。新建的练习文件夹里有它。
course-missing-program = 缺少 { $program }：{ $how }
course-not-compiled = cargo 无法编译 { $file }（见上文）。
course-missing-crate = 如果你指的是 crate { $name }，请把它加入 Cargo.toml：cargo add --manifest-path { $manifest } { $name }

## Status
course-status-passed = { $date } 通过
course-status-current = 你在这一关
course-status-open = 未开始
course-status-checks = 到现在检查了 { $checks } 次

## What happened to a client, or to a server
