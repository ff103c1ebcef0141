# 你来当调度器：用真实订单玩的游戏。
scheduler-lead = 两个真实订单抢最后一件商品。每条语句执行前都会停下，由你决定下一步轮到谁。
scheduler-no-script = 没有 JavaScript 就不能玩。第一关的最佳解法：A 读到 1，B 读到 1，A 写入 0，B 写入 0。两个订单都成交，同一件卖了两次。
scheduler-level-oversell-title = 一件商品卖两次
scheduler-level-oversell-goal = 没有锁。让两个订单都买到最后一件商品，需要 6 步。
scheduler-level-version-title = 让版本来决定
scheduler-level-version-goal = 没有锁，但现在每次写入都要求版本仍是订单读到的那个（语句里的 $3）。走同样的 6 步，看第二次写入被拒绝。
scheduler-level-useless-lock-title = 让锁失效
scheduler-level-useless-lock-goal = 两个订单都使用带租约的 Redis 锁。用 9 步把这件商品卖两次。你可以随时让租约过期。
scheduler-level-fence-title = 使用栅栏令牌
scheduler-level-fence-goal = 现在每次写入都带栅栏令牌。让一个订单失去租约，看它迟到的写入被拒绝，并让它返回响应，需要 10 步。
scheduler-level-free-title = 自由模式
scheduler-level-free-goal = 步骤的顺序由你决定。你能卖出比库存更多的商品吗？
scheduler-open = 你未结束的游戏
scheduler-open-game = 已走 { $steps } 步 · 还剩 { $minutes } 分钟
scheduler-continue = 继续
scheduler-end = 结束
scheduler-full-player = 你有 { $games } 局还没结束：请继续其中一局，或者结束它。
scheduler-full-replica = 这台服务器上同时进行的游戏已满。请过一分钟再试。
scheduler-full-row-lock = 同时使用行锁的订单已满：请换一种锁，或过一分钟再试。
scheduler-play = 开始
scheduler-strategy = 锁
scheduler-orders = 订单
scheduler-two = 两个订单，抢最后一件
scheduler-three = 三个订单，抢最后两件
scheduler-order = 订单 { $order }
scheduler-has-lock = 持有锁
scheduler-believes-lock = 自以为持有锁
scheduler-steps = { $steps ->
    [0] 选择谁先执行
   *[other] 已走 { $steps } 步
}
scheduler-reached = 用 { $steps } 步达成目标
scheduler-missed = 所有订单都已结束，目标没有达成：撤销一步，或重新开始。
scheduler-refused-over = 所有订单都已结束，没有下一步了。可以撤销一步，或重新开始。
scheduler-refused-steps = 本局已走 100 步，达到上限。可以撤销一步，或重新开始。
scheduler-refused-undo = 撤销失败，本局保持不变：重放的步骤没有及时得到同样的结果。请再试一次。
scheduler-stars = 3 颗星中的 { $stars } 颗
scheduler-books = 期初库存 { $opening } · 已售 { $sold } · 现有库存 { $stock }
scheduler-oversold = { $units } 件被卖了两次
scheduler-waits-lock = 正在等待锁。
scheduler-waits-row = 正在等待 Postgres：另一个订单锁住了这一行，还没有提交。
scheduler-undo = 撤销
scheduler-expire = 让租约过期
scheduler-again = 重新开始
scheduler-next-level = 下一关
scheduler-keys = 按键：{ $orders ->
    [2] A、B
   *[other] A、B、C
} 走一步，U 撤销{ $leases ->
    [yes] ，X 让租约过期
   *[no] {""}
}，R 重新开始。
scheduler-undo-about = 真实订单无法撤销：撤销会开始新的一局，并重放之前的步骤。
scheduler-left = 本局将在 { $minutes } 分钟后结束。
scheduler-taken = 步骤
scheduler-goal = 目标
scheduler-ledger = 账本，最新的在前
scheduler-fences = 每个租约预留 { $fences } 个栅栏令牌，供同一台服务器上相继持锁、不再询问 Redis 的订单使用。因此下一个租约的令牌大 { $fences }。
scheduler-fork = 分叉：另一条记录由同一版本计算得出。
scheduler-step = { $order }：{ $did }
scheduler-step-expired = Redis 删除了锁：租约过期
scheduler-step-waits = 等待
scheduler-step-waits-notice = 等待，直到它的服务器发现租约已过期
scheduler-rejected = 写入被拒绝：这一行的版本是 { $version }
scheduler-rejected-fenced = 写入被拒绝：这一行的版本是 { $version }，栅栏令牌是 { $fence }
scheduler-rejected-again = { $rejected }；它重新读取，库存为 { $value }
scheduler-saw = 库存为 { $value }
scheduler-fence = 栅栏令牌 { $value }
scheduler-next-lock = 获取锁
scheduler-next-read = 读取库存
scheduler-next-compute = 计算新库存
scheduler-next-sold-out = 发现已售罄
scheduler-next-write = 写入新库存
scheduler-next-write-commit = 写入并提交
scheduler-next-acknowledge = 收到确认
scheduler-next-prepare = 准备提交
scheduler-next-commit = 提交
scheduler-next-unlock = 释放锁
scheduler-next-finish = 结束处理
scheduler-next-respond = 返回响应
scheduler-result-sold = ✓ 已售出：库存 { $before } → { $after }
scheduler-result-sold-out = 已售罄
scheduler-result-timeout = 等待锁超时
scheduler-result-stale = 迟到的写入被拒绝：租约已丢失，后来的持锁者已经写入
scheduler-result-failed = 失败：{ $why }
scheduler-code-compute = 新库存 = 库存 − 1
scheduler-code-sold-out = 库存为零：已售罄
scheduler-code-uncommitted = 已写入，未提交
scheduler-code-acknowledged = 已提交
scheduler-code-finish = 结束处理
scheduler-code-respond = 返回响应
# On the site, where it is played on a Postgres in the browser.
site-scheduler-real = 这里是真实的语句，在本页面里运行的真实 Postgres 18 上执行，和商店发送的一样。一个连接逐条扮演两个订单。Redis 里的锁是模拟的：这里没有 Redis。
site-scheduler-size = 开始玩时会加载 Postgres：{ $mb } MB，服务器压缩时为 { $packed } MB；之后启动需要 5 到 20 秒。观看录像加载 { $kb } kB。点击之前什么都不加载。
site-scheduler-loading = 正在加载 Postgres：{ $loaded } / { $total } MB。可以先观看解法。
site-scheduler-loading-watched = 正在加载 Postgres：{ $loaded } / { $total } MB。加载完后，点某一关的“开始”就可以自己玩。
site-scheduler-starting = 正在启动 Postgres：需要 5 到 20 秒……
site-scheduler-tables = Postgres 已启动。正在创建商店的表：{ $done } / { $all }……
site-scheduler-opening = 正在添加商品……
site-scheduler-no-wasm = 这里无法加载 Postgres（从文件打开的页面不能加载 WebAssembly）。下面的录像播放商店里每一关的最佳解法。
site-scheduler-failed = 无法加载 Postgres：{ $why }。下面的录像播放每一关的最佳解法。
site-scheduler-broken = 没有成功：{ $why }。请重新开始这一关。
site-scheduler-all-real = 全部真实
site-scheduler-lock-modelled = 锁是模拟的
site-scheduler-recording = 录像：在商店里执行的最佳解法
site-scheduler-watch = 观看解法
site-scheduler-modelled = 模拟
site-scheduler-undo-about = 已提交的语句不能撤销：撤销会换一件新商品，重复之前的步骤。
site-scheduler-previous = 后退
site-scheduler-next = 前进
site-scheduler-pause = 暂停
site-scheduler-resume = 自动播放
site-scheduler-moment = 第 { $step } 步，共 { $steps } 步。{ $words }
site-scheduler-moment-first = 两个订单都等待第一步。
