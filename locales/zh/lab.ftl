# 实验室：课程地图、课程页、运行页。
lab-title = 实验室
lab-lead = 先回答问题，再看真实订单如何抢购，最后看账本怎么说。
lab-lessons = 课程
lab-chapter-done = 已完成 { $done } / { $all }
lab-lesson-done = 已完成
lab-start = 从这里开始：{ $title }
lab-continue = 继续：{ $title }
lab-minutes = { $minutes } 分钟
lab-level = 难度 { $level }（共 3 级）
lab-after = 先学 { $lessons }
lab-scheduler-title = 你来当调度器
lab-scheduler-lead = 两个订单，一件商品。由你决定下一步轮到谁。
lab-scheduler-play = 开始
lab-load-title = 自定义负载
lab-load-lead = 在相同负载下比较各种策略
lab-runs-title = 最近的运行
lab-runs-none = 还没有运行。
lab-earlier-runs = 以前的运行
lab-nothing-run = 没有运行
lab-run = 运行
lab-own-run = 自定义负载：{ $strategies }
lab-needs-redlock = 此处不可用：请用 --redlock 3 启动商店。
lab-access-sign-in = 登录后才能运行。
lab-access-admin = 在这个实验室里只有管理员可以运行。

## 课程
lab-answer = 回答
lab-answer-and-run = 回答并运行
lab-first-answer = 以第一次回答为准。
lab-watch-run = 观看运行
lab-see-run = 看看结果
lab-run-without-answer = 不猜，直接运行
lab-present = 演示模式
lab-present-end = 退出演示模式
lab-handout-answers = 答案
lab-handout-print = 打印本页即可得到讲义：第一页是问题，第二页是答案。
lab-settings = 设置
lab-settings-hint = （留空则用默认值）
lab-code-title = 运行的代码
lab-claim-title = 发生了什么
lab-claim-usual = 按本课原来的设置会发生什么
lab-your-answer = 你的回答：
lab-next-lesson = 下一课：{ $title }
lab-takeaways = 要点
lab-handout-why = 你的回答和理由：
lab-wrong-guess = 请从答案中选一个。

## 设置
lab-field-strategies = 策略（1 到 6 种）
lab-field-journey = 每个买家
lab-field-stock = 库存件数
lab-field-buyers = 并发买家数
lab-field-orders = 订单总数
lab-field-work-ms = 读与写之间的业务时间（ms）
lab-field-ttl-ms = 租约（ms）
lab-field-seed = 随机种子
lab-field-wait = 锁被占用时
lab-field-fault = 故障
lab-field-fault-at-ms = 多久后发生（ms）
lab-field-fault-for-ms = 持续时间（ms）
lab-default-lease = 服务器的默认值
lab-any-number = 任意数字
lab-range = { $least } 到 { $most }
lab-wrong-number = 请输入整数：{ $range }。
lab-wrong-choice = 请从列表中选一个。
lab-wrong-lesson = 请从 { $names } 中选一个。
lab-wrong-strategy = { $name } 不在 { $names } 之中。
lab-wrong-units = 用 units 时，负载只能是下单，而且库存至少一件：付款不会改变每件的行。
lab-wrong-wait-name = 请选择 try、retry 或 notify。
lab-wrong-strategies = 请选择 1 到 6 种策略。
lab-wrong-wait = 所选策略中有一种不支持这种方式。
lab-wrong-node = 这家商店没有 Redlock 节点；请用 --redlock 3 启动商店。
lab-wrong-redlock = { $strategy } 在此处不可用；请用 --redlock 3 启动商店。
lab-journey-order = 购买同一种商品一件
lab-journey-pay = 从同一个账户支付订单
lab-wait-default = 策略的默认方式
lab-wait-try = try：立即失败
lab-wait-retry = retry：轮询重试
lab-wait-notify = notify：等待移交
lab-wait-hint = 用于可选的策略
lab-fault-title = 加入故障
lab-fault-none = 无
lab-fault-pause-replica = 暂停一个副本
lab-fault-kill-replica = 杀死一个副本
lab-fault-pause-redis = 暂停 Redis
lab-fault-restart-redis = 杀死并重启 Redis
lab-fault-flush-redis = 清空 Redis 的全部数据
lab-fault-pause-node = 暂停一个 Redlock 节点
lab-fault-times = { $at } ms 后，持续 { $for } ms

## 运行状态
lab-state-queued = 排队中
lab-state-running = 运行中
lab-state-failed = 失败
lab-state-shown = 现象已重现
lab-state-not-shown = 现象未重现
lab-state-done = 完成
lab-queued-at = 排队中，第 { $position } 位
lab-live-title = 运行进展
lab-reconnecting = 连接中断，正在重连……

## 结论
lab-player-title = 慢动作
lab-pair = 两个请求都读到 { $before }（相隔 { $apart }），又都写入 { $after }。
lab-waits-retry = 这一课让 A 执行 120 ms，B 和 C 只好等。这里它们每隔约 { $retry_ms } ms 再试一次：A 释放之后，锁一直空着，直到其中一个来试。
lab-waits-queue = 换成排队：A 一释放就唤醒下一个，谁也不用白跑一趟。这里 A 释放 { $ms } ms 之后，最后一个也拿到了锁。
lab-handle-ttl-ms = A 的租约
lab-handle-work-ms = A 的暂停
lab-handle-gap-ms = A 在读与写之间的暂停
lab-handle-retry-ms = 重试间隔
lab-run-it = 运行
lab-computed = 移动滑块，或拖动图中的标记：图和上面这句话根据这次运行记录的时间算出；点“运行”可实测。页面其余部分是这次运行的记录。
lab-outcome-kept = 售出 { $sold } 件，库存 { $opening } → { $left }：没有丢失。
lab-outcome-lost = 售出 { $sold } 件，库存 { $opening } → { $left }：有一笔销售丢失。
lab-outcome-waited = A 释放 { $ms } ms 之后，最后一个才拿到锁。
lab-compare = { $slow }：{ $slow_orders } 个订单，{ $slow_commits } 次提交。{ $fast }：{ $fast_orders } 个订单，{ $fast_commits } 次提交。两者用同一时间刻度。
lab-verdict-title = 结果
lab-verdict-failed = 运行失败
lab-verdict-oversold = { $units ->
    [1] 件商品卖了两次
   *[other] 件商品是多卖的，并不存在
}
lab-verdict-overspent = 超出余额的付款
lab-verdict-forks = { $forks ->
   *[other] 次丢失更新
}
lab-verdict-drift = 库存与账本的差额
lab-verdict-sold = 件已售出（共 { $opening } 件），没有重复卖出
lab-verdict-paid = 已付款（共 { $opening }），没有重复付款
lab-verdict-times = { $ratio } 倍
lab-verdict-fastest = 每秒订单数，{ $fastest } 对比 { $slowest }
lab-books-balance = 这次运行的账目相符
lab-books-off = 这次运行的账目不符
lab-books-bar = （顶部那行是商店的账目）
lab-books-broken = 账目不符
lab-guess-was-right = 结果正是如此。
lab-guess-was-wrong = 不太对。
lab-guess-right-is = 正确答案：
lab-guess-not-judged = 这次运行没有重现该现象，因此不评判你的回答。
lab-beside-title = 并排比较：相同的到达顺序
lab-run-again = 再运行一次
lab-back = 回到实验室

## 所有访问者的回答
lab-guesses-title = 目前共 { $count } 个回答
lab-strategy-column = 策略
lab-share-column = 占比
lab-count-column = 人数
lab-guess-own = 你的选择
lab-guess-right = 正确

## 运行详情
lab-details = 详情
lab-figures-title = 数据
lab-rates-title = 每秒订单数
lab-curves-title = 售出数量随时间的变化
lab-waits-title = 响应时间
lab-samples-title = { $strategy }：采样
lab-figure-opening = 期初库存
lab-figure-sold = 售出
lab-figure-left = 剩余
lab-figure-oversold = 超卖
lab-figure-undersold = 少卖
lab-figure-money-sold = 已付款
lab-figure-money-left = 余额
lab-figure-money-oversold = 超支
lab-figure-money-undersold = 未花
lab-figure-money-rate = 付款/秒
lab-figure-drift = 偏差
lab-figure-breaks = 断链
lab-figure-forks = 分叉
lab-figure-rate = 订单/秒
lab-figure-p50 = p50
lab-figure-p99 = p99
lab-figure-answered = 响应数
lab-figure-waiting = 等待中
lab-figure-after = 时间
lab-figure-statuses = 状态码
lab-forks-lead = 分叉：根据同一次读取算出的记录。第一条之后的每一条都把同一件商品又卖了一次。
lab-forks-lead-money = 分叉：根据同一次读取算出的记录。第一条之后的每一条都把同一笔钱又花了一次。
lab-forks-count = { $forks } 处分叉，显示前 { $shown } 个
lab-fork-before = 变动前
lab-fork-pair = 前两个请求读到版本 { $version }，相隔 { $apart }。
lab-fork-all = 它们都读到版本 { $version }。
lab-and-more = 还有 { $count } 条
lab-unit-again = 同一件商品又卖一次
lab-money-again = 同一笔钱又花一次
lab-scenes-title = 这次运行的其他内容
lab-crowds-title = 请求
lab-crowds-lead = 每行一个请求，时间从左到右。较长的间隔已缩短。
lab-scene = { $requests } 个请求
lab-scene-under = { $strategy } 下的 { $requests } 个请求
lab-request = 请求 { $id }
lab-fork-fence = 栅栏令牌 { $fence }
lab-steps-title = 步骤
lab-started = 开始时间

## 文件
lab-file-label = 打开保存的运行
lab-file-open = 打开
lab-file-save = 保存这次运行
lab-file-invalid = 文件没有打开。这不是保存运行所得的文件。
lab-file-too-long = 文件没有打开。这次运行超过 5,000 个事件或 2 MB：本实验室的运行不会这么长。
lab-not-drawn = 没有全部画出：此页最多显示 { $events } 个事件。
lab-file-unverified = 从文件打开，内容没有与这里的账本核对。

# A lesson’s primer, and the words of its sketch.
lab-primer = 先了解一下
sketch-read = 读 { $number }
sketch-write = 写 { $number }
sketch-order-of = 订单 { $number }
sketch-waits = 等待
sketch-works = 执行
sketch-killed = 被杀死
sketch-commit = 提交
sketch-promoted = 升主
sketch-retry = 重试
sketch-renews = 续期
sketch-order = 订单
sketch-tea = 茶
sketch-coffee = 咖啡
