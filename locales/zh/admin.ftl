# The pages for admins: audit, locks, jobs.
admin-audit-title = 审计
admin-audit-sound = 账目正确：{ $checks } 项检查全部通过。
admin-audit-unsound = 账目有误：{ $checks } 项检查中有 { $failed } 项未通过。
admin-audit-holds = 通过
admin-audit-broken = 未通过
admin-audit-notes = 备注
admin-audit-hint = 所有检查读取同一个 repeatable-read 快照，即使有负载，也对同一时刻准确。命令行：`holdfast audit`
admin-audit-running = 正在审计：已完成 { $total } 项检查中的 { $done } 项。当前检查：`{ $check }`
admin-audit-reload = 结果出来之前，本页会自动刷新。

admin-locks-title = 锁
admin-locks-table = 被持有的锁
admin-locks-none = 现在没有锁被持有。
admin-locks-lock = 锁
admin-locks-holder = 持锁者
admin-locks-since = 开始时间
admin-locks-fence = 栅栏令牌
admin-locks-remaining = 剩余租约
admin-locks-waiting = 等待数
admin-locks-unknown = 未知
admin-locks-no-fence = 无
admin-locks-no-expiry = 永不过期
admin-locks-no-queue = 无队列
admin-locks-hint = Redis 中的当前状态。“持锁者”是副本。“等待数”是锁的队列中的副本数；同一副本内等待的请求算作一个。没有栅栏令牌的锁没有队列。
admin-refresh = 刷新

admin-jobs-title = 任务
admin-jobs-lead = 商店按计划执行的任务。每个副本都会尝试启动每次执行：锁只放行一个，而 Postgres 中每个任务、每个时间唯一的一行防止再次执行。
admin-jobs-off = 本副本不执行任务（`HOLDFAST_JOBS=off`），其他副本可能会执行。
admin-jobs-parked = { $job } 已搁置
admin-jobs-failed = 已失败 { $attempts } 次。
admin-jobs-last-error = 最近的错误
admin-jobs-due = 计划时间
admin-jobs-next-attempt = 下次尝试
admin-jobs-no-attempt = 只能由您启动
admin-jobs-retry = 立即重试
admin-jobs-schedule = 计划
admin-jobs-schedule-lab = 由实验室启动
admin-jobs-timeout = 最长时间
admin-jobs-next = 下次执行
admin-jobs-last = 上次执行
admin-jobs-never = 从未执行
admin-jobs-result = 结果
admin-jobs-previous = 前一次结果
admin-jobs-error = 错误
admin-jobs-replica = 副本
admin-jobs-state = 状态
admin-jobs-duration = 用时
admin-jobs-running = 执行中
admin-jobs-done = 已完成
admin-jobs-failed-state = 失败
admin-jobs-parked-state = 已搁置
admin-jobs-not-finished = 未结束
admin-jobs-attempt = 第 { $attempt } 次尝试
admin-jobs-earlier =
    { $attempts ->
       *[other] 之前的 { $attempts } 次尝试
     }
admin-jobs-runs = 最近的执行
admin-jobs-no-runs = 还没有。
admin-jobs-job = 任务
admin-jobs-clock = 时间以 Postgres 的时钟为准，由它决定任务何时到期。失败的执行会重试，间隔逐渐加长；五次之后搁置。
admin-jobs-fences = 栅栏令牌为任务锁的持锁者编号：越晚的编号越大。Redis 每次发锁预留 64 个编号，所以依次是 1、65、129。编号只在同一次执行内比较，因此 Redis 丢失数据后从 1 重新开始也没有影响。
admin-job-audit = 相互核对账本、订单和账户，并保存结果。
admin-job-purge = 删除限期保存的数据：保存的响应留一天，会话留到过期，执行记录留一个月。
admin-job-requeue-orders = 把即将到期的未支付订单重新加入队列，以防 Redis 丢失它们。
admin-job-lab-tick = 与商店无关。课程“只执行一次的定时任务”用它统计一次计划执行了几次。

admin-expiry-title = 未支付订单
admin-expiry-about = 未及时支付的订单会取消，商品归还库存。何时取消由 Redis 中的队列决定；任何副本都可以执行，而 Postgres 中的订单状态保证只执行一次。
admin-expiry-queued = 队列中
admin-expiry-no-redis = Redis 没有响应
admin-expiry-due = 现在到期
admin-expiry-failed = 订单 { $order }：取消失败
admin-expiry-parked = 订单 { $order } 已搁置
admin-expiry-parked-advice = 它的商品仍被保留。系统不会自动重试：请先查明原因。
admin-expiry-failed-at = 最近一次尝试

admin-result-sound = 账目正确：{ $checks } 项检查全部通过
admin-result-unsound = 账目有误：{ $checks } 项检查中 { $failed } 项未通过：{ $names }
admin-result-nothing = 无事可做
admin-result-rest = 其余留给下次执行
admin-result-due-soon =
    { $number ->
       *[other] { $count } 个未支付订单五分钟内到期
    }
admin-result-no-room = 其中 { $count } 个因队列已满未能加入
admin-result-forgotten =
    { $number ->
       *[other] 删除 { $count } 条失败记录
    }
admin-result-keys =
    { $number ->
       *[other] 删除 { $count } 个幂等键
    }
admin-result-answers =
    { $number ->
       *[other] 删除 { $count } 个保存的响应
    }
admin-result-sessions =
    { $number ->
       *[other] 删除 { $count } 个会话
    }
admin-result-runs =
    { $number ->
       *[other] 删除 { $count } 条旧的执行记录
    }
admin-result-marks =
    { $number ->
       *[other] 实验室的 { $count } 个标记
    }
