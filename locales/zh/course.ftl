# The course: write your own lock. Its terminal, the README of its folder, and its page.
course-title = 课程：自己写一把锁
course-lead = 八关。每一关多一种真实的锁会遇到的故障，最后能过关的只剩带 fence 的锁。
course-how = 你写两个函数：acquire 和 release。holdfast course check 让它们干活：两个进程里的客户端读出库存、减一、写回。然后它制造故障，再从账本里看有没有丢失更新。
course-needs = 需要 Holdfast，以及 Python（3.9 及以上）、JavaScript（Node.js 18 及以上）或 Rust；每次检查都会自己启动 Redis 和 Postgres。什么都不会发送到别处。
course-begin = 开始
course-levels = 关卡
course-collision = 互相冲突的两个请求
course-solved = 第 1 关的解法

course-level = 第 { $level } 关（共 8 关）：{ $title }

course-1-title = 先有一把锁
course-1-fault = 没有
course-1-learned = 两个客户端读到同一个数，都减一，就丢了一次更新。用一条原子命令设置的锁能把它们分开。
course-1-hint-1 = Redis 有一条命令，只在键不存在时才设置：SET 键 值 NX。没有得到回复的，睡一小会儿再试。
course-1-hint-2 = 先 GET 再 SET 是两条命令，中间会插进别的客户端。两次尝试之间睡大约 10 毫秒，过了 wait_s 就放弃。

course-2-title = 锁必须会过期
course-2-fault = 持锁者被杀死
course-2-learned = 死掉的进程不会释放锁。租约会自己到期，所以键在设置的同时就要有过期时间，而不是之后再补。（检查看不出这个区别：这里没有进程恰好在两条命令之间被杀死。）
course-2-hint-1 = Redis 可以自己删除键：PX 是毫秒数。用 ttl_ms。
course-2-hint-2 = SET 再 PEXPIRE 是两条命令：在它们之间被杀死，就留下一个永不过期的键。SET 键 值 NX PX ttl_ms 是一条。

course-3-title = 只释放自己的锁
course-3-fault = 工作比租约长
course-3-learned = DEL 不管锁是谁的都会删掉。令牌说明锁是谁的，而比较和删除是同一步。（先 GET 再 DEL 在这里也会通过：租约很少恰好在两者之间结束。）
course-3-hint-1 = 每次获取都用一个自己的值，即随机的令牌；只有键还是这个值时才删除。
course-3-hint-2 = GET 再 DEL 是两条命令，租约可能正好在中间结束。脚本是一步：EVAL "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end" 1 键 令牌

course-4-title = 工作时续期
course-4-fault = 工作比租约长
course-4-learned = 租约的长度是对工作时长的猜测。后台续期不用再猜，并且随持锁者一起结束。
course-4-hint-1 = 在 acquire 里启动一个线程（或定时器），每过三分之一租约就重设过期时间，在 release 里停掉它。
course-4-hint-2 = 只续自己的锁：脚本先比较令牌，再 PEXPIRE。锁已经不是自己的，续期失败，就停下。

course-5-title = fence（栅栏令牌）
course-5-fault = 持锁者的进程被暂停
course-5-learned = 不知道时间已经过去的进程，没有锁能拦住。存储可以：它比较 fence，拒绝被超过的人。
course-5-hint-1 = 从这一关起 acquire 返回两个值：令牌和 fence。对另一个键 INCR 就能计数。
course-5-hint-2 = 这个数必须在持有锁时取得，最好在同一步：脚本设置键，再返回另一个键的 INCR。

course-6-title = fence 要比存储活得久
course-6-fault = Redis 丢失数据
course-6-learned = 会丢的计数器排不出次序。fence 要来自不会忘记自己发出过什么的存储。
course-6-hint-1 = postgres(…) 执行一条语句。序列的每个数只给一次，Postgres 会记住。已经有一个：fences。
course-6-hint-2 = 设置键之后再从序列取数：select nextval('fences')。提前取的数，可能比更快的客户端的数小。

course-7-title = 很多客户端
course-7-fault = 客户端多一倍
course-7-learned = 一遍遍地问，服务器的开销比锁本身还大，而且轮到谁全凭运气。排队的人只问一次，轮到了就被叫醒。
course-7-hint-1 = Redis 可以替你等：BLPOP 在别的客户端推入元素时返回，并按等待的先后服务。
course-7-hint-2 = 让 release 往锁旁边的列表推入一个元素，即接力棒。拿到接力棒的人可以设置键。接力棒会随持锁者一起丢：既没有持锁者也没有接力棒时，得有人放一根新的，而且不能放两根。

course-8-title = 全部一起来
course-8-fault = 主从切换、网络分区、取消的请求、断开的连接
course-8-learned = 你的锁现在做到了 Redis 上的锁能做到的：大多数时候互斥，始终有进展，剩下的交给 fence。
course-8-hint-1 = 看看是哪种故障没过，两个客户端做了什么。每次调用服务器都可能抛出异常；等消息的人，消息永远不来时也要能活下去。
course-8-hint-2 = 被取消的 acquire 不能留下锁、队列里的位置，或者没有主人却还在继续的续期：清理，然后再次抛出。后台线程遇到第一个错误就结束，之后就缺了它。

## Creating a folder
course-new = { $folder } 已准备好。在 { $file } 里写 acquire 和 release，然后运行：
course-new-exists = { $folder } 已存在且不为空。请换一个新文件夹。
course-readme-files = { $file } 是你的。{ $helper } 与判定程序对话，并为你准备好 Redis 和 Postgres：开头几行说明怎样调用。.course.json 保存你的进度，可以上交：里面没有姓名、密码和代码。
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
course-lost-late = { $lost }；另有 { $late } 是在某个回合超过半个租约之后
course-rule-fenced = 比较 fence 的地方没有丢失更新
course-rule-held = 至少 30% 的时间有人持有
course-rule-redis = 锁在 Redis 里（每次获取的命令数）
course-rule-store = 不排斥其他服务器的客户端
course-rule-burn = 等待的客户端每秒最多 400 条命令
course-rule-blocked = { $ms } 毫秒之内又能拿到
course-rule-leftover = 没有留下键
course-rule-release = 丢了的锁不回答“ok”
course-rule-true = 还持有的锁不回答“丢了”
course-rule-kept = 下一个持锁者的锁没有被抢走
course-rule-fences = fence 从不倒退
course-rule-jain = 服务均匀：0.9 或以上
course-rule-wait = 等待最多是公平队列的 3 倍
course-rule-commands = 每次获取最多 6 条命令
course-rule-starved = 没有人一直等不到
course-rule-ran = 故障能够发生
course-no-redis = 这两个函数没有向 Redis 发送命令。放在文件里或一个进程内存里的锁，只能分开同一台机器上的进程；检查里的两个进程代表两台机器。（别的服务器上的锁用 holdfast judge 评判。）
course-no-store = 两个客户端各有自己的 Redis 和 Postgres，请求同一个键，却只有一个得到锁。所以锁不在这些服务器里，而是这台机器上的文件、套接字或变量；两台机器不会共享它。
course-store-both = 两个都得到了锁
course-store-one = 只有一个得到了锁
course-sleeps = 大部分时间里没有人拿着锁工作：要么客户端两次尝试之间睡得太久，要么 release 回答了“true”，却把键留在 Redis 里。
course-errors = acquire 或 release 有 { $calls } 次调用以错误结束，而 Redis 和 Postgres 一直都在。最后一次：{ $error }
course-burns = 等待的客户端不停地问 Redis，把持锁者也拖慢了。两次尝试之间睡大约 10 毫秒。（所有命令都算，脚本里调用的也算；每次获取有六条不算。）
course-commands = 所有客户端的全部命令都算，脚本里调用的也算：尝试、续期，以及后台运行的（包括没有人要锁的时候）在 10 毫秒（一个回合）里的命令。建立连接的命令不算。
course-stderr = 写到 stderr 的最后几行（故障：{ $fault }）：
course-rules = 规则
course-measured = 测得
course-rules-hold = 其他 { $rules } 条规则成立
course-empty = acquire 一次也没有给出锁：它没有向任何客户端返回令牌。它还是空的吗？
course-endless = acquire 的一次调用过了 wait_s 又 { $seconds } 秒还没有结束。过了 wait_s 就要放弃。
course-endless-load = 文件在 { $seconds } 秒之内没有加载完。写在函数外面的代码一开始就会运行，必须会结束。
course-endless-release = release 的一次调用在 { $seconds } 秒之内没有结束。它不能等待锁，也不能被一次不结束的 acquire 挡住。
course-missing-file = { $folder } 里缺少 { $file }。课程的新文件夹里有它。
course-missing-program = 缺少 { $program }：{ $how }
course-not-compiled = cargo 无法编译 { $file }（见上文）。
course-missing-crate = 如果你指的是 crate { $name }，请把它加入 Cargo.toml：cargo add --manifest-path { $manifest } { $name }

## Status
course-status-passed = { $date } 通过
course-status-current = 你在这一关
course-status-open = 未开始
course-status-checks = 到现在检查了 { $checks } 次

## What happened to a client, or to a server
